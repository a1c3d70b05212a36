package main

import (
	"context"
	"flag"
	"io"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/e2e/vm"
)

func TestFlags(t *testing.T) {
	dir := t.TempDir()
	tests := []struct {
		name string
		args []string
		want vm.Options
	}{
		{name: "defaults", args: []string{"--", "ls", "-l"}, want: vm.Options{Command: []string{"ls", "-l"}}},
		{name: "command without dashes", args: []string{"-v", "ls"}, want: vm.Options{Command: []string{"ls"}, Verbose: true}},
		{name: "places and files", args: []string{
			"-share", dir + ":/run/in", "-share", dir + ":/run/out:rw", "-copy", "a:/run/a", "-dir", "/run/in", "--", "x",
		}, want: vm.Options{
			Command: []string{"x"}, Dir: "/run/in", Copies: []vm.Copy{{Host: "a", Guest: "/run/a"}},
			Shares: []vm.Share{{Host: dir, Guest: "/run/in"}, {Host: dir, Guest: "/run/out", Writable: true}},
		}},
		{name: "the rest", args: []string{
			"-env", "A=1", "-env", "B=x y", "-modules", "ip_vs,dummy veth", "-iptables", "legacy", "-need", "iptables", "-accel", "tcg", "-m", "512", "-smp", "1",
			"-timeout", "90s", "--", "x",
		}, want: vm.Options{
			Command: []string{"x"}, Env: []string{"A=1", "B=x y"}, Modules: []string{"ip_vs", "dummy", "veth"}, IPTables: "legacy", Need: vm.NeedIPTables,
			Accel: "tcg", MemoryMiB: 512, CPUs: 1, Timeout: 90 * time.Second,
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got vm.Options
			flags := flag.NewFlagSet("vmrun", flag.ContinueOnError)
			bind(flags, &got)
			if err := flags.Parse(tt.args); err != nil {
				t.Fatal(err)
			}
			got.Command = flags.Args()
			got.Defaults()
			tt.want.Defaults()
			tt.want.Stdout, tt.want.Log, got.Stdout, got.Log = nil, nil, nil, nil
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("options (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBadFlagsAreRefused(t *testing.T) {
	for _, args := range [][]string{
		{"-share", "nowhere"}, {"-copy", "x:relative"}, {"-timeout", "soon"}, {"-m", "much"}, {"-no-such-flag"}, {"-need", "pf"},
	} {
		flags := flag.NewFlagSet("vmrun", flag.ContinueOnError)
		flags.SetOutput(io.Discard)
		bind(flags, &vm.Options{})
		if err := flags.Parse(args); err == nil {
			t.Errorf("%v was accepted", args)
		}
	}
}

func TestRunnersOwnFailuresHaveOneStatus(t *testing.T) {
	// A cache that cannot be used keeps a runner that gets too far from booting anything.
	t.Setenv("KUBE_IPVS_CACHE", filepath.Join("..", "testdata", "cache"))
	tests := []struct {
		name string
		args []string
		want int
	}{
		{"help", []string{"-h"}, 0},
		{"unknown flag", []string{"-no-such-flag"}, vm.StatusBroken},
		{"no command", nil, vm.StatusBroken},
		{"bad flavour", []string{"-iptables", "ipfw", "--", "true"}, vm.StatusBroken},
		{"auto with a path that only a VM has", []string{"-auto", "-copy", "x:/root/x", "--", "true"}, vm.StatusBroken},
		{"unusable cache", []string{"-prepare"}, vm.StatusBroken},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := run(context.Background(), tt.args); got != tt.want {
				t.Errorf("status %d, want %d", got, tt.want)
			}
		})
	}
}
