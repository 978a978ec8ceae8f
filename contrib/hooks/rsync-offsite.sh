#!/bin/sh
# Copies the model directory and all checkpoints to another place, after each checkpoint:
#
#   [checkpoint]
#   hook = ["/etc/apollod/rsync-offsite.sh", "backup@host:/srv/apollod/m"]
#
# The target (a directory here, or whatever rsync takes) exists. It gets `model/`, which any tool loads, and `checkpoints/`.
# The last line of the output becomes the reason in `hook.failed`.
set -eu

die() {
    echo "rsync-offsite: $*" >&2
    exit 1
}

[ $# -eq 1 ] || die "usage: rsync-offsite.sh TARGET"
target=${1%/}
: "${APOLLOD_MODEL_DIR:?run by apollod, or set it to the model directory}"
: "${APOLLOD_CHECKPOINT_PATH:?run by apollod, or set it to the directory of a checkpoint}"
: "${APOLLOD_CHECKPOINT_STEP:?run by apollod}"
command -v rsync >/dev/null || die "rsync is not installed"

# Shared: other readers go on, a sync of newer weights is put off until this copy is done, and no copy is half of each.
exec 9<"$APOLLOD_MODEL_DIR/.apollod/weights.lock"
flock -s -w 600 9 || die "the weights of $APOLLOD_MODEL_DIR are being written for ten minutes already"

# All checkpoints, so that one whose copy failed comes with the next; what is there already is not sent again. None is deleted
# over there. Before the model, so that a model over there always has the checkpoint that it is. --modify-window=-1 (rsync 3.1.3):
# sizes never change, and without it two syncs in one second look the same.
rsync -a --modify-window=-1 --exclude='*.tmp-*' --exclude='*.old-*' "${APOLLOD_CHECKPOINT_PATH%/*}/" "$target/checkpoints/" ||
    die "checkpoints not copied to $target (rsync ended with $?)"

# --delay-updates: all files change over there at the end, at nearly one moment. .apollod is of this machine.
rsync -a --modify-window=-1 --delete --delay-updates --exclude=/.apollod "$APOLLOD_MODEL_DIR/" "$target/model/" ||
    die "model not copied to $target (rsync ended with $?)"

echo "step $APOLLOD_CHECKPOINT_STEP ${APOLLOD_CHECKPOINT_FINGERPRINT:-} copied to $target"
