package memory_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	"go.uber.org/zap/zaptest/observer"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/memory"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/nodefs"
)

const oomScore = "proc/self/oom_score_adj"

func TestSetOOMScore(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare func(*testing.T, nodefs.Node)
		want    string // in the error
		log     []string
	}{
		"another score": {
			prepare: func(t *testing.T, n nodefs.Node) { n.File(t, oomScore, "0") },
			log:     []string{"info: oom score changed map[score:-999 was:0]"},
		},
		"no proc": {
			prepare: func(*testing.T, nodefs.Node) {},
			want:    `set oom_score_adj from "" to -999: open ROOT/proc/self/oom_score_adj: no such file or directory; remedy: mount /proc`,
		},
		"a write that is not kept": {
			prepare: func(t *testing.T, n nodefs.Node) {
				n.File(t, oomScore, "0")
				n.IgnoreFile(t, oomScore)
			},
			want: `set oom_score_adj from "" to -999: the kernel keeps ""; remedy: run privileged or with CAP_SYS_RESOURCE, ` +
				`or ask for a score that is not below the present one`,
			log: []string{`debug: oom score refused map[attempt:1 error:the kernel keeps ""]`,
				`debug: oom score refused map[attempt:2 error:the kernel keeps ""]`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := nodefs.New(t)
			tc.prepare(t, n)
			core, logs := observer.New(zap.DebugLevel)
			err := memory.SetOOMScore(t.Context(), zap.New(core), n.Files(), -999)
			got := ""
			if err != nil {
				got = strings.ReplaceAll(err.Error(), n.Root, "ROOT")
			} else {
				n.WantFile(t, oomScore, "-999")
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			var said []string
			for _, e := range logs.All() {
				said = append(said, fmt.Sprintf("%s: %s %v", e.Level, e.Message, e.ContextMap()))
			}
			if diff := cmp.Diff(tc.log, said); diff != "" {
				t.Errorf("log (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSetOOMScoreKeepsTheCause(t *testing.T) {
	n := nodefs.New(t)
	if err := memory.SetOOMScore(t.Context(), zaptest.NewLogger(t), n.Files(), -999); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("SetOOMScore = %v, want a missing file", err)
	}
	n.File(t, oomScore, "0")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := memory.SetOOMScore(ctx, zaptest.NewLogger(t), n.Files(), -999); !errors.Is(err, context.Canceled) {
		t.Errorf("SetOOMScore = %v, want the end of the context", err)
	}
	n.WantFile(t, oomScore, "0")
}

// A write would remove the blank in the file.
func TestRightOOMScoreIsNotWritten(t *testing.T) {
	n := nodefs.New(t)
	nodefs.WriteFile(t, n.Path(oomScore), "-999 \n", 0o644)
	if err := memory.SetOOMScore(t.Context(), zaptest.NewLogger(t), n.Files(), -999); err != nil {
		t.Fatalf("SetOOMScore: %v", err)
	}
	b, err := os.ReadFile(n.Path(oomScore))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("-999 \n", string(b)); diff != "" {
		t.Errorf("file (-want +got):\n%s", diff)
	}
}
