"""All effects: requests to the outside world. Safe to repeat; the outcome comes back as an input.

Each subject declares its own in `facts`; this module re-exports them.
"""

from apollod.core.facts.alignment import CompareWeights as CompareWeights
from apollod.core.facts.alignment import DropScore as DropScore
from apollod.core.facts.alignment import ProbeTrainer as ProbeTrainer
from apollod.core.facts.alignment import ScoreProbe as ScoreProbe
from apollod.core.facts.checkpoints import ObserveCheckpoint as ObserveCheckpoint
from apollod.core.facts.checkpoints import RemoveCheckpoint as RemoveCheckpoint
from apollod.core.facts.checkpoints import RunHook as RunHook
from apollod.core.facts.checkpoints import WriteCheckpoint as WriteCheckpoint
from apollod.core.facts.children import AttachTrainer as AttachTrainer
from apollod.core.facts.children import SpawnEngine as SpawnEngine
from apollod.core.facts.children import SpawnTrainer as SpawnTrainer
from apollod.core.facts.children import StopChild as StopChild
from apollod.core.facts.daemon import Exit as Exit
from apollod.core.facts.dreams.inputs import AnswerScenario as AnswerScenario
from apollod.core.facts.dreams.inputs import CancelDream as CancelDream
from apollod.core.facts.dreams.inputs import ImagineScenario as ImagineScenario
from apollod.core.facts.dreams.inputs import JudgeDream as JudgeDream
from apollod.core.facts.dreams.inputs import TestScenario as TestScenario
from apollod.core.facts.environments import SampleGroup as SampleGroup
from apollod.core.facts.followups import ScoreFollowUp as ScoreFollowUp
from apollod.core.facts.forgetting import PlanForget as PlanForget
from apollod.core.facts.holding import EncodeAnchors as EncodeAnchors
from apollod.core.facts.holding import FreezeAnchor as FreezeAnchor
from apollod.core.facts.intake.inputs import EncodeExamples as EncodeExamples
from apollod.core.facts.intake.inputs import encode as encode
from apollod.core.facts.judging.events import AskJudge as AskJudge
from apollod.core.facts.lessons.inputs import Ask as Ask
from apollod.core.facts.lessons.inputs import AskLesson as AskLesson
from apollod.core.facts.lessons.inputs import PrepareLesson as PrepareLesson
from apollod.core.facts.lessons.inputs import WordLesson as WordLesson
from apollod.core.facts.publishing import PauseEngine as PauseEngine
from apollod.core.facts.publishing import RefreshEngine as RefreshEngine
from apollod.core.facts.publishing import ResumeEngine as ResumeEngine
from apollod.core.facts.quality.inputs import EndSearch as EndSearch
from apollod.core.facts.quality.inputs import MeasureQuality as MeasureQuality
from apollod.core.facts.quality.inputs import RankedStep as RankedStep
from apollod.core.facts.quality.inputs import RankExamples as RankExamples
from apollod.core.facts.quality.inputs import ReplayWindow as ReplayWindow
from apollod.core.facts.quality.inputs import TellAlarm as TellAlarm
from apollod.core.facts.recovery import KeepBase as KeepBase
from apollod.core.facts.recovery import Restore as Restore
from apollod.core.facts.rescoring import RescoreExamples as RescoreExamples
from apollod.core.facts.rollback import PlanRollback as PlanRollback
from apollod.core.facts.scoring import ScoreExample as ScoreExample
from apollod.core.facts.training import RunStep as RunStep
from apollod.core.facts.updates import DropUpdateFiles as DropUpdateFiles
from apollod.core.facts.updates import RemoveUpdateFiles as RemoveUpdateFiles
from apollod.core.kernel.effect import Effect as Effect
