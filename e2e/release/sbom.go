package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
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

// sbom returns the components of a program as a CycloneDX document (version 1.6, ECMA-424). They
// are the modules with their sums in go.sum, and Go. The program itself names them, so the document
// has no module that go.mod allows and the program lacks.
func sbom(program, version string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Clean(program))
	if err != nil {
		return nil, err
	}
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return nil, fmt.Errorf("read what %s is made of: %w", program, err)
	}
	d, err := describe(info, version, sha256.Sum256(text))
	if err != nil {
		return nil, fmt.Errorf("describe %s: %w", program, err)
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetIndent("", "  ")
	err = encoder.Encode(d)
	return out.Bytes(), err
}

// describe returns the document about a program with a sum. The caller knows the version: with
// -trimpath the program does not record what the linker was told.
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
