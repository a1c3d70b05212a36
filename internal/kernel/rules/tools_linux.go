package rules

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// tools are the three binaries of one family and backend.
type tools struct {
	command, save, restore string
}

// findTools looks for the binaries of a backend. A host with one backend
// alone may have plain names only; those count if their version confirms it.
func findTools(ctx context.Context, timeout time.Duration, f Family, b Backend) (tools, error) {
	base := "iptables"
	if f == IPv6 {
		base = "ip6tables"
	}
	if t, err := lookTools(base + "-" + string(b)); err == nil {
		return t, nil
	}
	t, err := lookTools(base)
	if err != nil {
		return tools{}, fmt.Errorf("find %s of backend %s: %w", base, b, err)
	}
	if got, err := t.backend(ctx, timeout); err != nil || got != b {
		return tools{}, fmt.Errorf("find %s of backend %s: %s is %s: %w", base, b, t.command, got, ErrUnsupported)
	}
	return t, nil
}

func lookTools(base string) (tools, error) {
	t := tools{command: base, save: base + "-save", restore: base + "-restore"}
	for _, name := range []*string{&t.command, &t.save, &t.restore} {
		path, err := exec.LookPath(*name)
		if err != nil {
			return tools{}, fmt.Errorf("%s: %w", *name, ErrUnsupported)
		}
		*name = path
	}
	return t, nil
}

// program is the file behind the command. The names of all tools of a backend lead to
// one: xtables-nft-multi or xtables-legacy-multi.
func (t tools) program() string {
	path, err := filepath.EvalSymlinks(t.command)
	if err != nil {
		return t.command
	}
	return path
}

// backend goes by the program that carries the command, or asks it; versions before 1.8
// know legacy only and name no backend.
func (t tools) backend(ctx context.Context, timeout time.Duration) (Backend, error) {
	switch filepath.Base(t.program()) {
	case "xtables-nft-multi":
		return NFT, nil
	case "xtables-legacy-multi":
		return Legacy, nil
	}
	out, err := run(ctx, timeout, nil, t.command, "--version")
	if err != nil {
		return "", fmt.Errorf("ask version: %w", err)
	}
	if bytes.Contains(out, []byte("nf_tables")) {
		return NFT, nil
	}
	return Legacy, nil
}

// content is the evidence that a backend is the one the host uses.
type content struct {
	kube  bool // has a KUBE- chain, ours or the kubelet's
	rules int
	// opened has the families whose listing opened the tables of nft. The tools fail if the kernel
	// has none, and otherwise print which table belongs to another program instead of its rules.
	opened map[Family]bool
}

// better: Kubernetes' own chains decide (the kubelet leaves
// KUBE-IPTABLES-HINT in mangle for this purpose), then the number of rules.
func (c content) better(o content) bool {
	if c.kube != o.kube {
		return c.kube
	}
	return c.rules > o.rules
}

func (c *content) add(f Family, save []byte) {
	c.opened[f] = !bytes.Contains(save, []byte("incompatible"))
	lines := bufio.NewScanner(bytes.NewReader(save))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		switch s := lines.Text(); {
		case strings.HasPrefix(s, ":KUBE-"):
			c.kube = true
		case strings.HasPrefix(s, "-A "):
			c.rules++
		}
	}
}

// legacyInUse is found out without loading the legacy modules, which merely
// running iptables-legacy-save would do.
func legacyInUse(root string, f Family) bool {
	text, err := os.ReadFile(netFile(root, namesFile(f)))
	return err == nil && len(bytes.TrimSpace(text)) > 0
}

// namesFile lists the tables of legacy that are loaded in a namespace.
func namesFile(f Family) string {
	if f == IPv6 {
		return "ip6_tables_names"
	}
	return "ip_tables_names"
}
