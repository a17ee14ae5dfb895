/* SPDX-License-Identifier: MIT */
/* foreign - a table of first bytes and a table of file names. */
#include "base/foreign.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"

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
        {"\x80\2", 2,
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
    };
    char path[4096];
    for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++) {
        int n = snprintf(path, sizeof path, "%s/%s", dir, dirs[i].file);
        if (n < (int)sizeof path && pp_file_exists(path))
            return dirs[i].what;
    }
    return NULL;
}
