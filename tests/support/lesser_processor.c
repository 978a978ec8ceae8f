/* Preloaded, it has PyTorch's library cpuinfo forget instructions that this processor has (LESSER_PROCESSOR: "avx2" or
 * "avx512"). ATen's dispatch, vLLM's choice of its compiled extension and its predicates, inductor's vectors: all of
 * them ask that library. oneDNN asks the processor itself and has a variable of its own. See support/processors.py. */
#define _GNU_SOURCE
#include <cpuinfo.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

bool cpuinfo_initialize(void) {
	/* libc10 is loaded for its importer alone, so it is asked for by name rather than as the next one */
	void* c10 = dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD);
	if (!c10) abort();
	bool (*real)(void) = (bool (*)(void))dlsym(c10, "cpuinfo_initialize");
	struct cpuinfo_x86_isa* isa = dlsym(c10, "cpuinfo_isa");
	const char* kind = getenv("LESSER_PROCESSOR");
	if (!real || !isa || !kind) abort();
	bool known = real();
	isa->avx512bf16 = isa->avx512fp16 = isa->avx10_1 = isa->avx10_2 = false;
	isa->amx_bf16 = isa->amx_tile = isa->amx_int8 = isa->amx_fp16 = false;
	if (!strcmp(kind, "avx2"))
		isa->avx512f = isa->avx512cd = isa->avx512dq = isa->avx512bw = isa->avx512vl = isa->avx512ifma = isa->avx512vbmi =
		    isa->avx512vbmi2 = isa->avx512bitalg = isa->avx512vpopcntdq = isa->avx512vnni = isa->avx512vp2intersect = false;
	return known;
}
