/* SPDX-License-Identifier: Apache-2.0
 *
 * The bundle: a little-endian ELF64 file (.twb) with everything that a device and its driver need
 * for one model on one target. Written by compiler/emit/, read by loader/bundle/. Sections:
 *
 *   .note.tilewright  directly after the ELF header; PT_NOTE; marks the file as a bundle: owner
 *                     TW_NOTE_NAME, type NT_VERSION, which has no descriptor (eu-elflint accepts
 *                     no other note of an owner that it does not know)
 *   .tw.header        directly after the note: struct tw_bundle_note
 *   .tw.strings       the string table of all programs (offset 0 is "")
 *   .tw.programs      struct tw_programs_header, then one program blob each
 *                     (tilewright/progblob.h) without streams
 *   .tw.image.<n>     one encoded op stream (words of tilewright/opcode.h); streams of equal shape
 *                     share an image
 *   .tw.sites         struct tw_sites_header, images, streams, patches, arguments: which (program,
 *                     site, engine) runs which image, with which words replaced by arguments
 *   .tw.bind          uint64 binding rows, filled by relocation; .rela.tw.bind: one TW_R_64
 *                     (symbol + addend) per row, in the order of the rows
 *   .tw.param.<bank>  weights, packed for the target; PT_LOAD, 64 KiB-aligned in file and memory
 *   .tw.banks         one struct tw_bank_record per bank: size and hash of .tw.param.<bank>
 *   .tw.init          reserved for initial values of State tensors with init BLOB; absent or empty
 *   .tw.state, .tw.scratch
 *                     NOBITS: State; Input and Output tensors. One writable PT_LOAD holds .tw.bind
 *                     and these two
 *   .tw.vocab         blob of tilewright/vocab.h (absent if the model has no tokenizer)
 *   .tw.chat          text: the model's chat template, as in its file (absent if there is none)
 *   .tw.origin        text: one line per stage origin
 *   .tw.plan          text: the chosen plan and its prices
 *   .tw.cert          the programs' order certificates (loader/order/certificate.h), or absent
 *   .tw.signature     reserved; absent or empty
 *   .tw.identity      TW_HASH_BYTES bytes: what the programs compute, equal for all targets and
 *                     context lengths, or absent; states can be restored where it is equal
 *   .symtab .strtab .shstrtab
 *                     every tensor instance as a sized global OBJECT symbol in its section
 *   .tw.types         one struct tw_symbol_type per symbol, same index as .symtab: role and dtype.
 *                     (Not st_other: the linters of every machine reject bits there that its ABI
 *                     does not define.)
 *
 * The ELF identity is ET_EXEC, ELFOSABI_NONE, EM_X86_64 and no entry point. Nothing in the file is
 * x86 code and no part of it is executable. x86-64 is named because relocation type 1 of its ABI
 * means exactly what we need, a 64-bit word "symbol + addend", so that readelf, nm, objdump, strip
 * and eu-elflint read a bundle without complaint (EM_NONE has no relocations at all, and each tool
 * says so).
 *
 * The file has two parts: metadata, [0, meta_bytes), that is, headers and all sections except the
 * weights; then the weights. The content hash covers the metadata and, through the hashes in
 * .tw.banks, the weights: opening a bundle does not require a pass over the weights, and one hash
 * still identifies the whole content.
 *
 * Sections that a reader does not know are ignored unless their sh_flags have TW_SHF_REQUIRED.
 */
#ifndef TILEWRIGHT_BUNDLE_H
#define TILEWRIGHT_BUNDLE_H

#include "tilewright/machine.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TW_BUNDLE_MAJOR 2u
#define TW_BUNDLE_MINOR 1u
#define TW_NOTE_NAME "Tilewright" /* owner; its 11 bytes with NUL are padded to 12 */
#define TW_NOTE_TYPE 1u           /* NT_VERSION */
#define TW_HASH_BYTES 32u         /* BLAKE2b-256 */
#define TW_R_64 1u
/* SHF_OS_NONCONFORMING, with its ELF meaning: a reader that does not know the section refuses. */
#define TW_SHF_REQUIRED 0x100u
#define TW_PARAM_ALIGN 65536u
#define TW_SYMBOL_ALIGN 64u
#define TW_MAX_BANKS 64u
#define TW_MAX_IMAGES 0xF000u /* section indices stay below SHN_LORESERVE */

/* Every section with a fixed name: X(id, name, sh_type, sh_flags, required). Numbered ones:
 * .tw.param.<bank> (PROGBITS, ALLOC, n_banks of them) and .tw.image.<n> (PROGBITS). The sh_ names
 * are those of <elf.h>. */
#define TW_BUNDLE_SECTIONS(X)                                       \
    X(NOTE, ".note.tilewright", SHT_NOTE, 0, 1)                     \
    X(HEADER, ".tw.header", SHT_PROGBITS, 0, 1)                     \
    X(BIND, ".tw.bind", SHT_PROGBITS, SHF_ALLOC | SHF_WRITE, 1)     \
    X(STATE, ".tw.state", SHT_NOBITS, SHF_ALLOC | SHF_WRITE, 1)     \
    X(SCRATCH, ".tw.scratch", SHT_NOBITS, SHF_ALLOC | SHF_WRITE, 1) \
    X(RELA, ".rela.tw.bind", SHT_RELA, SHF_INFO_LINK, 1)            \
    X(SYMTAB, ".symtab", SHT_SYMTAB, 0, 1)                          \
    X(STRTAB, ".strtab", SHT_STRTAB, 0, 1)                          \
    X(SHSTRTAB, ".shstrtab", SHT_STRTAB, 0, 1)                      \
    X(TYPES, ".tw.types", SHT_PROGBITS, 0, 1)                       \
    X(BANKS, ".tw.banks", SHT_PROGBITS, 0, 1)                       \
    X(STRINGS, ".tw.strings", SHT_PROGBITS, 0, 1)                   \
    X(PROGRAMS, ".tw.programs", SHT_PROGBITS, 0, 1)                 \
    X(SITES, ".tw.sites", SHT_PROGBITS, 0, 1)                       \
    X(VOCAB, ".tw.vocab", SHT_PROGBITS, 0, 0)                       \
    X(CHAT, ".tw.chat", SHT_PROGBITS, 0, 0)                         \
    X(PLAN, ".tw.plan", SHT_PROGBITS, 0, 0)                         \
    X(ORIGIN, ".tw.origin", SHT_PROGBITS, 0, 0)                     \
    X(INIT, ".tw.init", SHT_PROGBITS, 0, 0)                         \
    X(CERT, ".tw.cert", SHT_PROGBITS, 0, 0)                         \
    X(SIGNATURE, ".tw.signature", SHT_PROGBITS, 0, 0)               \
    X(IDENTITY, ".tw.identity", SHT_PROGBITS, 0, 0)

enum tw_section_id {
#define TW_X(id, name, type, flags, required) TW_SEC_##id,
    TW_BUNDLE_SECTIONS(TW_X)
#undef TW_X
        TW_SEC_COUNT
};

/* Content of .tw.header. Text fields are NUL-padded UTF-8, truncated if longer. */
struct tw_bundle_note {
    uint16_t bundle_major, bundle_minor;
    /* machine ABI needed: this major version, at least this minor */
    uint16_t abi_major, abi_min_minor;
    uint32_t n_programs;
    uint32_t n_vocab, n_ctx, n_layers;
    uint32_t n_banks;
    uint32_t flags;
    uint64_t n_params;                  /* weights of the model */
    uint64_t meta_bytes;                /* set by the writer: end of the metadata */
    uint8_t target_hash[TW_HASH_BYTES]; /* of the target's canonical JSON */
    /* set by the writer: hash of [0, meta_bytes) with this field zero */
    uint8_t content_hash[TW_HASH_BYTES];
    char target[64], model[128], arch[32], license[64], tool[64];
};
TW_STATIC_ASSERT(sizeof(struct tw_bundle_note) == 464, "note");

/* Fixed offsets in the file: ELF header; note (Elf64_Nhdr, owner padded to a multiple of 4); struct
 * tw_bundle_note. */
#define TW_NOTE_OFFSET 64u
#define TW_NOTE_BYTES (12u + 12u)
#define TW_HEADER_OFFSET (TW_NOTE_OFFSET + TW_NOTE_BYTES)

#define TW_PROGRAMS_MAGIC 0x31505754u /* "TWP1" */
struct tw_programs_header {
    uint32_t magic, n_programs;
    uint64_t n_bind_rows;
    /* followed by n_programs x struct tw_program_record */
};
struct tw_program_record {
    uint64_t offset, bytes; /* from the section's start, 8-aligned */
};
TW_STATIC_ASSERT(sizeof(struct tw_programs_header) == 16, "programs header");
TW_STATIC_ASSERT(sizeof(struct tw_program_record) == 16, "program record");

#define TW_SITES_MAGIC 0x31535754u /* "TWS1" */
/* Followed by images, streams, patches (u32) and arguments (u32), without gaps. */
struct tw_sites_header {
    uint32_t magic, n_images, n_streams, n_patches, n_args;
    uint32_t reserved;
};
TW_STATIC_ASSERT(sizeof(struct tw_sites_header) == 24, "sites header");
/* Image n is section .tw.image.<n>; its patches are word positions, in ascending order. */
struct tw_image_record {
    uint32_t n_words, first_patch, n_patches, reserved;
};
TW_STATIC_ASSERT(sizeof(struct tw_image_record) == 16, "image record");
/* A stream's words are those of its image, with word patch[first_patch + i] replaced by
 * args[first_arg + i]. There is one record for every (program, site, engine), in that order; image
 * TW_NONE means an empty stream. */
struct tw_stream_record {
    uint32_t program, site, engine, image, first_arg, reserved;
};
TW_STATIC_ASSERT(sizeof(struct tw_stream_record) == 24, "stream record");
/* Maximum bytes of expanded streams that a reader accepts for a file of that size, so that a small
 * file cannot request a large allocation. */
#define TW_MAX_EXPANDED_BYTES(file_bytes) (1048576u + 256u * (uint64_t)(file_bytes))

/* Size and hash of one bank's weights. */
struct tw_bank_record {
    uint64_t bytes;
    uint8_t hash[TW_HASH_BYTES];
};
TW_STATIC_ASSERT(sizeof(struct tw_bank_record) == 40, "bank record");

/* Role and dtype of one symbol. */
struct tw_symbol_type {
    uint8_t role, dtype, reserved[2];
};
TW_STATIC_ASSERT(sizeof(struct tw_symbol_type) == 4, "symbol type");

#ifdef __cplusplus
}
#endif
#endif
