package vm

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// bootImage builds an x86 kernel image around a payload: one setup sector, then the protected-mode part.
func bootImage(payload []byte) []byte {
	image := make([]byte, 1024+16)
	image[0x1f1] = 1
	copy(image[0x202:], "HdrS")
	binary.LittleEndian.PutUint32(image[0x248:], 16)
	binary.LittleEndian.PutUint32(image[0x24c:], uint32(len(payload)+4))
	image = append(image, payload...)
	return append(image, 0xff, 0xff, 0xff, 0xff)
}

func TestImagePayload(t *testing.T) {
	good := bootImage([]byte("payload"))
	if got, err := imagePayload(good); err != nil || string(got) != "payload" {
		t.Errorf("imagePayload = %q, %v", got, err)
	}
	tooLong := bootImage([]byte("payload"))
	binary.LittleEndian.PutUint32(tooLong[0x24c:], 5000)
	noMagic := bootImage([]byte("payload"))
	noMagic[0x202] = 'X'
	for name, image := range map[string][]byte{"too long": tooLong, "no magic": noMagic, "short": good[:100], "empty": nil} {
		if got, err := imagePayload(image); err == nil {
			t.Errorf("%s: imagePayload = %q, want an error", name, got)
		}
	}
}

// elfNote encodes one ELF note.
func elfNote(name string, kind uint32, data []byte) []byte {
	var note []byte
	note = binary.LittleEndian.AppendUint32(note, uint32(len(name)+1))
	note = binary.LittleEndian.AppendUint32(note, uint32(len(data)))
	note = binary.LittleEndian.AppendUint32(note, kind)
	note = append(note, append([]byte(name), 0)...)
	note = append(note, make([]byte, align4(len(note))-len(note))...)
	note = append(note, data...)
	return append(note, make([]byte, align4(len(note))-len(note))...)
}

func TestHasNote(t *testing.T) {
	notes := bytes.Join([][]byte{elfNote("GNU", 18, []byte("abc")), elfNote("Xen", 6, []byte("linux\x00")), elfNote("Xen", 18, make([]byte, 4))}, nil)
	tests := []struct {
		name  string
		notes []byte
		want  bool
	}{
		{name: "third of three", notes: notes, want: true},
		{name: "same type, other owner", notes: elfNote("GNU", 18, nil)},
		{name: "same owner, other type", notes: elfNote("Xen", 6, nil)},
		{name: "cut off", notes: notes[:len(notes)-4]},
		{name: "empty"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := hasNote(tt.notes, "Xen", xenNotePhys32Entry); got != tt.want {
				t.Errorf("hasNote = %t, want %t", got, tt.want)
			}
		})
	}
}

// elfFile builds the smallest ELF file with one segment of notes.
func elfFile(notes []byte) []byte {
	var file bytes.Buffer
	file.WriteString("\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9))
	words := []any{uint16(2), uint16(62), uint32(1), uint64(0), uint64(64), uint64(0), uint32(0), uint16(64), uint16(56), uint16(1),
		uint16(0), uint16(0), uint16(0), // end of the header, the only segment follows
		uint32(4), uint32(4), uint64(120), uint64(0), uint64(0), uint64(len(notes)), uint64(len(notes)), uint64(4)}
	for _, word := range words {
		_ = binary.Write(&file, binary.LittleEndian, word)
	}
	file.Write(notes)
	return file.Bytes()
}

func TestUnpackImage(t *testing.T) {
	if _, ok := lookTool("gzip"); !ok {
		t.Skip("no gzip on this machine")
	}
	pvh := elfFile(elfNote("Xen", xenNotePhys32Entry, make([]byte, 4)))
	tests := []struct {
		name, wantErr string
		payload       []byte
	}{
		{name: "OK", payload: zip(t, pvh)},
		{name: "no PVH entry", payload: zip(t, elfFile(elfNote("Xen", 6, nil))), wantErr: "no PVH entry"},
		{name: "not an ELF file", payload: zip(t, []byte("x")), wantErr: "no PVH entry"},
		{name: "unknown compression", payload: []byte("strange"), wantErr: "unknown compression"},
		{name: "damaged", payload: zip(t, pvh)[:20], wantErr: "gzip -dc"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			image, target := filepath.Join(dir, "vmlinuz"), filepath.Join(dir, "vmlinux")
			if err := os.WriteFile(image, bootImage(tt.payload), 0o644); err != nil {
				t.Fatal(err)
			}
			err := unpackImage(t.Context(), image, target)
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Fatalf("error = %v, want %q", err, tt.wantErr)
				}
				return
			}
			got, readErr := os.ReadFile(target)
			if err != nil || readErr != nil || !bytes.Equal(got, pvh) {
				t.Errorf("unpacked %d bytes, %v, %v, want %d", len(got), err, readErr, len(pvh))
			}
		})
	}
}

func zip(t *testing.T, data []byte) []byte {
	t.Helper()
	var buffer bytes.Buffer
	w := gzip.NewWriter(&buffer)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buffer.Bytes()
}
