package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/modules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/procfs"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/nodefs"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// Only a kernel that reports a missing feature makes the agent fall back. A failed probe is an
// error, because the kernel may have the feature.
func TestWhatCostsTheMode(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error
		want bool
	}{
		{"no ip_vs", fmt.Errorf("open: %w", vserver.ErrUnsupported), true},
		{"no sets", fmt.Errorf("open: %w", ipset.ErrUnsupported), true},
		{"no dummy links", fmt.Errorf("make: %w", link.ErrUnsupported), true},
		{"no right to ask", fmt.Errorf("%w: %w", vserver.ErrUnsupported, os.ErrPermission), false},
		{"no answer", context.DeadlineExceeded, false},
		{"busy", link.ErrBusy, false},
	} {
		if got := lacksIPVS(tt.err); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
}

// A node that can run no mode is told what it lacks for each, with the package to install.
func TestNoModeNamesWhatIsMissing(t *testing.T) {
	node := nodefs.New(t)
	node.File(t, "lib/modules/6.1.0-18-amd64/modules.dep", "kernel/net/veth.ko:")
	k := &kernel{modules: modules.New(zap.NewNop(), modules.Options{Files: procfs.Files{Root: node.Root}})}
	noTools := withIPTablesHint(fmt.Errorf("choose iptables backend: no iptables tools found: %w", rules.ErrUnsupported))
	got := noMode(k.withModuleHint("ip_vs", fmt.Errorf("open IPVS: %w", vserver.ErrUnsupported)), noTools).Error()
	want := []string{
		"no mode can run on this node: it lacks IPVS, and it lacks iptables",
		"  ipvs mode: open IPVS: ",
		"  remedy: ip_vs: not in this kernel; on Ubuntu: apt install linux-modules-extra-6.1.0-18-amd64; ",
		"  iptables mode: choose iptables backend: no iptables tools found: ",
		"  remedy: install iptables: the package iptables on Debian and Ubuntu, iptables-nft on RHEL and Fedora, ",
	}
	lines := strings.Split(got, "\n")
	if len(lines) != len(want) {
		t.Fatalf("%d lines, want %d:\n%s", len(lines), len(want), got)
	}
	for i, line := range lines {
		if !strings.HasPrefix(line, want[i]) {
			t.Errorf("line %q, want %q", line, want[i])
		}
	}
	if got := noMode(fmt.Errorf("open: %w", ipset.ErrUnsupported), noTools).Error(); !strings.HasPrefix(got, "no mode can run on this node: it lacks what ipvs mode needs, and it lacks iptables\n") {
		t.Error(got)
	}
}

// TestImpliedModeIsSaid: where the mode is left to the program, the log and an Event name once the one that runs.
func TestImpliedModeIsSaid(t *testing.T) {
	kubeadm := "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"
	own := "apiVersion: " + config.OwnAPIVersion + "\nkind: " + config.OwnKind + "\n"
	for _, tt := range []struct {
		name, file string
		args       []string
		want       bool
	}{
		{"empty", kubeadm + `mode: ""`, nil, true},
		{"not there", kubeadm, nil, true},
		{"ipvs", kubeadm + "mode: ipvs", nil, false},
		{"by a flag", kubeadm + `mode: ""`, []string{"--proxy-mode=ipvs"}, false},
		{"our own file", own, nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(directory(t, map[string]string{"config.conf": tt.file}), "config.conf")
			flags, defaults := pflag.NewFlagSet("test", pflag.ContinueOnError), config.Defaults()
			config.Bind(flags, &defaults)
			if err := flags.Parse(append(tt.args, "--config="+file)); err != nil {
				t.Fatal(err)
			}
			loaded, err := config.NewLoader(flags).Load("node-a")
			if err != nil {
				t.Fatal(err)
			}
			core, logs := observer.New(zapcore.DebugLevel)
			modeDecision{asked: config.ModeIPVS, active: loaded.Config.Mode, implied: loaded.Config.ModeImplied}.report(zap.New(core), nil)
			if got := logs.FilterMessageSnippet("leaves mode empty").Len() == 1; got != tt.want || logs.Len() > 1 {
				t.Errorf("lines %v, want one about the mode: %t", logs.All(), tt.want)
			}
		})
	}
}

func TestFallbackIsSaid(t *testing.T) {
	missing := errors.New("ip_vs: not there")
	for _, tt := range []struct {
		name   string
		chosen modeDecision
		level  zapcore.Level
		want   string
	}{
		{"ipvs runs", modeDecision{asked: config.ModeIPVS, active: config.ModeIPVS}, 0, ""},
		{"iptables on purpose", modeDecision{asked: config.ModeIPTables, active: config.ModeIPTables}, 0, ""},
		{"fell back", modeDecision{config.ModeIPVS, config.ModeIPTables, missing, true}, zapcore.WarnLevel, "falling back to iptables mode"},
		{"chosen by itself", modeDecision{config.ModeAuto, config.ModeIPTables, missing, false}, zapcore.InfoLevel, "no IPVS"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			core, logs := observer.New(zapcore.DebugLevel)
			tt.chosen.report(zap.New(core), nil)
			all := logs.All()
			if tt.want == "" {
				if len(all) > 0 {
					t.Errorf("log %v", all)
				}
				return
			}
			if len(all) != 1 || all[0].Level != tt.level || !strings.Contains(all[0].Message, tt.want) || all[0].ContextMap()["error"] != missing.Error() {
				t.Errorf("log %v", all)
			}
		})
	}
}
