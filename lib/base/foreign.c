/* SPDX-License-Identifier: MIT */
/* foreign - a table of first bytes and a table of file names. */
#include "base/foreign.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const char *pp_foreign_file(const void *head, size_t n)
{
    static const struct {
        const char *magic;
        size_t bytes;
        const char *what;
    } files[] = {
        {"\x1f\x8b", 2, "compressed; read what zcat prints"},
        {"\x28\xb5\x2f\xfd", 4, "compressed; read what zstdcat prints"},
        {"PAR1", 4, "a Parquet table; scripts/tokenize reads it"},
        {"ARROW1", 6, "an Arrow table; scripts/tokenize reads it"},
        {"\x93NUMPY", 6, "a .npy array"},
        {"GGUF", 4, "a GGUF file; take the model's own safetensors"},
        {"PK\3\4", 4,
         "a zip file of PyTorch (.pt, .bin, .distcp); save the model as "
         "safetensors with save_pretrained"},
        {"\x80", 1,
         "a pickle of PyTorch (.pt, .bin); save the model as safetensors with "
         "save_pretrained"},
        {"version https://git-lfs", 23,
         "a pointer of git-lfs, not the file; run 'git lfs pull'"},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (n >= files[i].bytes &&
            !memcmp(head, files[i].magic, files[i].bytes))
            return files[i].what;
    return NULL;
}

/* Reports whether a directory has a file of this name. A name that begins with
 * '*' stands for all names with the same end. */
static bool has_file(const char *dir, const char *name)
{
    char path[4096];
    if (*name != '*')
        return snprintf(path, sizeof path, "%s/%s", dir, name) <
                   (int)sizeof path &&
               access(path, F_OK) == 0;
    size_t n = strlen(++name);
    bool found = false;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && !found && (e = readdir(d));) {
        size_t length = strlen(e->d_name);
        found = length > n && !strcmp(e->d_name + length - n, name);
    }
    if (d)
        closedir(d);
    return found;
}

const char *pp_foreign_dir(const char *dir)
{
    static const char pickled[] =
        "has pytorch_model.bin, which is not safetensors; load and save it "
        "with transformers, which writes model.safetensors";
    static const struct {
        const char *file, *what;
    } dirs[] = {
        {"pytorch_model.bin", pickled},
        {"pytorch_model.bin.index.json", pickled},
        {"adapter_config.json",
         "is an adapter; merge it into its model with peft "
         "(merge_and_unload) and save that"},
        {".metadata",
         "is a checkpoint of torch.distributed (.distcp); save the model as "
         "safetensors with save_pretrained"},
        {"latest_checkpointed_iteration.txt",
         "is a checkpoint of Megatron-LM; export it in the form of Hugging "
         "Face, as Megatron Bridge does"},
        {"zero_to_fp32.py",
         "is a checkpoint of DeepSpeed; make safetensors of it with its own "
         "zero_to_fp32.py"},
        {"consolidated.00.pth",
         "has weights in Meta's own form; take the model's own safetensors"},
        {"*.gguf", "has a GGUF file; take the model's own safetensors"},
        {"tf_model.h5",
         "has weights of TensorFlow; load and save it with transformers"},
        {"flax_model.msgpack",
         "has weights of Flax; load and save it with transformers"},
    };
    for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++)
        if (has_file(dir, dirs[i].file))
            return dirs[i].what;
    return NULL;
}
