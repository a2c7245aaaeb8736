/* A libnvidia-ml.so.1 for tests. FAKE_NVML_STATE names a file that is read at each call, one GPU a line:
 *
 *     total_mib used_mib init_error process_error [pid:mib ...]
 *
 * An error of 0 is none. A process with -1 MiB has no figure, as in a virtual machine or under WSL. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned int u32;
typedef unsigned long long u64;

#define GPUS 8
#define PROCESSES 16
#define NOT_AVAILABLE (~0ull)

struct gpu {
    u64 total, used;
    int init_error, process_error, count;
    u32 pid[PROCESSES];
    u64 held[PROCESSES];
};
static struct gpu gpus[GPUS];
static u32 gpu_count;

static void load(void) {
    const char *path = getenv("FAKE_NVML_STATE");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[512];
    gpu_count = 0;
    if (!file) return;
    while (gpu_count < GPUS && fgets(line, sizeof line, file)) {
        struct gpu *gpu = &gpus[gpu_count];
        int used = 0, step;
        long long mib;
        gpu->count = 0;
        if (sscanf(line, "%llu %llu %d %d%n", &gpu->total, &gpu->used, &gpu->init_error, &gpu->process_error, &used) < 4)
            continue;
        char *rest = line + used;
        while (gpu->count < PROCESSES && sscanf(rest, " %u:%lld%n", &gpu->pid[gpu->count], &mib, &step) == 2) {
            gpu->held[gpu->count++] = mib < 0 ? NOT_AVAILABLE : (u64)mib << 20;
            rest += step;
        }
        gpu_count++;
    }
    fclose(file);
}

static struct gpu *of(void *handle) { return &gpus[(long)handle - 1]; }

int nvmlInitWithFlags(u32 flags) { (void)flags; load(); return gpu_count ? gpus[0].init_error : 0; }
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return 0; }

const char *nvmlErrorString(int error) {
    switch (error) {
        case 0: return "Success";
        case 4: return "Insufficient Permissions";
        case 9: return "Driver Not Loaded";
        case 15: return "GPU is lost";
        case 18: return "Driver/library version mismatch";
        default: return "Unknown Error";
    }
}

int nvmlDeviceGetCount_v2(u32 *count) { load(); *count = gpu_count; return 0; }

int nvmlDeviceGetHandleByIndex_v2(u32 index, void **handle) {
    load();
    if (index >= gpu_count) return 2;
    *handle = (void *)(long)(index + 1);
    return 0;
}

struct memory { u64 total, free, used; };

int nvmlDeviceGetMemoryInfo(void *handle, struct memory *memory) {
    load();
    memory->total = of(handle)->total << 20;
    memory->used = of(handle)->used << 20;
    memory->free = memory->total - memory->used;
    return 0;
}

struct process { u32 pid; u64 held; u32 gpu_instance, compute_instance; };

int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, u32 *count, struct process *processes) {
    load();
    struct gpu *gpu = of(handle);
    if (gpu->process_error) return gpu->process_error;
    if (!gpu->count) { *count = 0; return 0; }
    if (!processes || *count < (u32)gpu->count) { *count = gpu->count; return 7; }
    for (int i = 0; i < gpu->count; i++)
        processes[i] = (struct process){gpu->pid[i], gpu->held[i], ~0u, ~0u};
    *count = gpu->count;
    return 0;
}
