package daemon

import (
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/memory"
)

func TestMemoryIsBoundByTheControlGroup(t *testing.T) {
	for _, tt := range []struct {
		name, environment string
		limit             memory.Limit
		err               error
		want              int64
		log               []string
	}{
		{name: "no limit", want: math.MaxInt64},
		{
			name: "a limit", limit: memory.Limit{Bytes: 100 << 20, Group: "/sys/fs/cgroup/a"}, want: 90 << 20,
			log: []string{"info: the Go memory limit is set to 90% of the control group's memory limit map[bytes:94371840 group:/sys/fs/cgroup/a limit:104857600]"},
		},
		{name: "the environment wins", environment: "off", limit: memory.Limit{Bytes: 100 << 20}, want: math.MaxInt64},
		{
			name: "unknown", err: errors.New("no such luck"), want: math.MaxInt64,
			log: []string{"warn: cannot read the memory limit of the control group, the Go memory limit is not set map[error:no such luck]"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			percent, before := debug.SetGCPercent(100), debug.SetMemoryLimit(math.MaxInt64)
			defer func() { debug.SetGCPercent(percent); debug.SetMemoryLimit(before) }()
			t.Setenv("GOMEMLIMIT", tt.environment)
			t.Setenv("GOGC", "")
			core, logs := observer.New(zap.InfoLevel)
			boundMemory(zap.New(core), func() (memory.Limit, error) { return tt.limit, tt.err })
			if got := debug.SetMemoryLimit(-1); got != tt.want {
				t.Errorf("soft limit %d, want %d", got, tt.want)
			}
			if got := debug.SetGCPercent(100); got != garbagePercent {
				t.Errorf("GOGC %d, want %d", got, garbagePercent)
			}
			var said []string
			for _, e := range logs.All() {
				said = append(said, fmt.Sprintf("%s: %s %v", e.Level, e.Message, e.ContextMap()))
			}
			if diff := cmp.Diff(tt.log, said); diff != "" {
				t.Errorf("log (-want +got):\n%s", diff)
			}
		})
	}
}
