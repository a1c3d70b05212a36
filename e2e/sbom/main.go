// Program sbom writes what a Go program is made of as a CycloneDX document (version 1.6,
// ECMA-424) on standard output: its module, the modules that were compiled into it with
// the sums that go.sum has of them, and the Go that compiled it. It reads the program
// itself, so it tells what is in there and not what go.mod allows.
//
//	sbom bin/kube-ipvs v1.2.3
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
)

// document is the part of CycloneDX that is used. It has neither a time nor a serial
// number, so that two of one program are the same.
type document struct {
	Format       string       `json:"bomFormat"`
	Spec         string       `json:"specVersion"`
	Version      int          `json:"version"`
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type metadata struct {
	Component component `json:"component"`
}

// component is a module, or the program. A Package URL names it (package-url/purl-spec,
// type golang), and is the reference of dependencies, too.
type component struct {
	Type    string `json:"type"`
	Ref     string `json:"bom-ref"`
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	PURL    string `json:"purl"`
	Hashes  []hash `json:"hashes,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type dependency struct {
	Ref string   `json:"ref"`
	On  []string `json:"dependsOn"`
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: sbom PROGRAM VERSION")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func write(program, version string) error {
	text, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return fmt.Errorf("read what %s is made of: %w", program, err)
	}
	d, err := describe(info, version, sha256.Sum256(text))
	if err != nil {
		return fmt.Errorf("describe %s: %w", program, err)
	}
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", "  ")
	return out.Encode(d)
}

// describe is the document about a program with a sum. Which version it is only who built
// it knows: with -trimpath what the linker was told is not in it.
func describe(info *debug.BuildInfo, version string, sum [sha256.Size]byte) (document, error) {
	d := document{Format: "CycloneDX", Spec: "1.6", Version: 1}
	d.Metadata.Component = module("application", info.Main.Path, version)
	d.Metadata.Component.Hashes = []hash{{"SHA-256", hex.EncodeToString(sum[:])}}
	d.Components = []component{module("library", "std", strings.TrimPrefix(info.GoVersion, "go"))}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		c := module("library", m.Path, m.Version)
		sum, err := treeHash(m.Sum)
		if err != nil {
			return document{}, fmt.Errorf("sum of %s: %w", m.Path, err)
		}
		c.Hashes = sum
		d.Components = append(d.Components, c)
	}
	top := dependency{Ref: d.Metadata.Component.Ref}
	for _, c := range d.Components {
		top.On = append(top.On, c.Ref)
	}
	d.Dependencies = []dependency{top}
	return d, nil
}

func module(kind, path, version string) component {
	purl := "pkg:golang/" + path
	if version != "" {
		purl += "@" + strings.ReplaceAll(version, "+", "%2B")
	}
	return component{Type: kind, Ref: purl, Name: path, Version: version, PURL: purl}
}

// treeHash is the sum of a module's files as go.sum has it, SHA-256 in base64.
func treeHash(sum string) ([]hash, error) {
	rest, ok := strings.CutPrefix(sum, "h1:")
	if !ok {
		return nil, nil // a module replaced by a directory has none
	}
	b, err := base64.StdEncoding.DecodeString(rest)
	if err != nil {
		return nil, err
	}
	return []hash{{"SHA-256", hex.EncodeToString(b)}}, nil
}
