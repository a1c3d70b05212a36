package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"runtime/debug"
	"strings"
	"testing"
)

func TestDescribe(t *testing.T) {
	sum := sha256.Sum256([]byte("files"))
	info := &debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Path: "example.com/program"}, Deps: []*debug.Module{
		{Path: "example.com/a", Version: "v1.2.3", Sum: "h1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="},
		{Path: "example.com/b", Version: "v1.0.0+incompatible"},
		{Path: "example.com/old", Version: "v1.0.0", Replace: &debug.Module{Path: "example.com/new", Version: "v2.0.0"}},
	}}
	d, err := describe(info, "v9.9.9", sum)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range append([]component{d.Metadata.Component}, d.Components...) {
		line := c.PURL
		for _, h := range c.Hashes {
			line += " " + h.Algorithm + " " + h.Content[:8]
		}
		got = append(got, line)
	}
	want := `pkg:golang/example.com/program@v9.9.9 SHA-256 ` + hex.EncodeToString(sum[:4]) + `
pkg:golang/std@1.26.8
pkg:golang/example.com/a@v1.2.3 SHA-256 e3b0c442
pkg:golang/example.com/b@v1.0.0%2Bincompatible
pkg:golang/example.com/new@v2.0.0`
	if text := strings.Join(got, "\n"); text != want {
		t.Errorf("components:\n%s\nwant:\n%s", text, want)
	}
	if on := d.Dependencies[0].On; len(on) != len(d.Components) || on[3] != d.Components[3].Ref {
		t.Errorf("the program depends on %q", on)
	}
}

func TestBrokenSum(t *testing.T) {
	info := &debug.BuildInfo{Deps: []*debug.Module{{Path: "example.com/a", Sum: "h1:?"}}}
	if d, err := describe(info, "", [sha256.Size]byte{}); err == nil {
		text, _ := json.Marshal(d)
		t.Errorf("a sum that is none became %s", text)
	}
}
