package vm

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// A distribution's kernel image unpacks itself, which under emulation takes half of the boot time. QEMU can start the unpacked
// ELF file instead, when the kernel was built with the PVH entry point, so it is unpacked once, natively, into the cache.

// xenNotePhys32Entry is the ELF note by which a kernel offers the PVH entry point (Xen's elfnote.h).
const xenNotePhys32Entry = 18

// decompressors choose a program by the first bytes of the payload.
var decompressors = []struct {
	magic   string
	program string
}{
	{"\xfd7zXZ\x00", "xz"},
	{"\x28\xb5\x2f\xfd", "zstd"},
	{"\x1f\x8b", "gzip"},
	{"\x02\x21\x4c\x18", "lz4"},
	{"BZh", "bzip2"},
}

// unpackImage writes the ELF file inside a kernel image to path. It fails for kernels that QEMU could not start that way.
func unpackImage(ctx context.Context, image, path string) error {
	data, err := os.ReadFile(image)
	if err != nil {
		return err
	}
	payload, err := imagePayload(data)
	if err != nil {
		return fmt.Errorf("unpack %s: %w", image, err)
	}
	kernel, err := decompress(ctx, payload)
	if err != nil {
		return fmt.Errorf("unpack %s: %w", image, err)
	}
	if !hasPVHEntry(kernel) {
		return fmt.Errorf("unpack %s: the kernel has no PVH entry point", image)
	}
	return os.WriteFile(path, kernel, 0o644)
}

// imagePayload cuts the compressed kernel out of an x86 image: Linux's Documentation/arch/x86/boot.rst, fields setup_sects (0x1f1),
// header magic (0x202), payload_offset (0x248) and payload_length (0x24c). The length includes four bytes of unpacked size.
func imagePayload(image []byte) ([]byte, error) {
	if len(image) < 0x250 || string(image[0x202:0x206]) != "HdrS" {
		return nil, errors.New("not an x86 kernel image")
	}
	protected := (int(image[0x1f1]) + 1) * 512
	start := protected + int(binary.LittleEndian.Uint32(image[0x248:]))
	end := start + int(binary.LittleEndian.Uint32(image[0x24c:])) - 4
	if start >= end || end > len(image) {
		return nil, errors.New("payload lies outside of the image")
	}
	return image[start:end], nil
}

func decompress(ctx context.Context, payload []byte) ([]byte, error) {
	for _, known := range decompressors {
		if !bytes.HasPrefix(payload, []byte(known.magic)) {
			continue
		}
		cmd := exec.CommandContext(ctx, known.program, "-dc")
		cmd.Stdin = bytes.NewReader(payload)
		data, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("%s -dc: %w", known.program, err)
		}
		return data, nil
	}
	return nil, errors.New("unknown compression")
}

func hasPVHEntry(kernel []byte) bool {
	file, err := elf.NewFile(bytes.NewReader(kernel))
	if err != nil {
		return false
	}
	for _, segment := range file.Progs {
		if segment.Type != elf.PT_NOTE {
			continue
		}
		notes, err := io.ReadAll(segment.Open())
		if err == nil && hasNote(notes, "Xen", xenNotePhys32Entry) {
			return true
		}
	}
	return false
}

// hasNote walks ELF notes: three words (name size, data size, type), then name and data, each padded to four bytes.
func hasNote(notes []byte, name string, kind uint32) bool {
	for len(notes) >= 12 {
		nameSize := int(binary.LittleEndian.Uint32(notes))
		dataSize := int(binary.LittleEndian.Uint32(notes[4:]))
		size := 12 + align4(nameSize) + align4(dataSize)
		if size > len(notes) {
			return false
		}
		found := string(bytes.TrimRight(notes[12:12+nameSize], "\x00"))
		if found == name && binary.LittleEndian.Uint32(notes[8:]) == kind {
			return true
		}
		notes = notes[size:]
	}
	return false
}

func align4(n int) int { return (n + 3) &^ 3 }
