package rulewatch

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
)

// watched runs a TableWatcher that gets one notification, and returns how often it repaired and what
// it logged.
func watched(t *testing.T, list []nftables.Writer, lost int, failed error) (repairs int, logged []observer.LoggedEntry) {
	t.Helper()
	core, entries := observer.New(zap.InfoLevel)
	ctx, cancel := context.WithCancel(t.Context())
	w := NewTableWatcher(zap.New(core), TableOptions{
		Watch: func(ctx context.Context, changed func([]nftables.Writer)) error {
			changed(list)
			cancel()
			return ctx.Err()
		},
		Own:    func(port uint32) bool { return port == 7 },
		Repair: func(context.Context) (int, error) { repairs++; return lost, failed },
		Lost: func(programs []string, rows int) {
			if len(programs) != 1 || programs[0] != "nft" || rows != lost {
				t.Errorf("%d rows lost by %q", rows, programs)
			}
		},
	})
	w.Run(ctx)
	return repairs, entries.All()
}

func TestTableWatcherNamesThePrograms(t *testing.T) {
	repairs, logged := watched(t, []nftables.Writer{{Port: 7, PID: 1, Program: "kube-ipvs"}, {Port: 8, PID: 2, Program: "nft"}, {Port: 9, PID: 2, Program: "nft"}}, 3, nil)
	if repairs != 1 || len(logged) != 1 {
		t.Fatalf("%d repairs, log %v", repairs, logged)
	}
	fields := logged[0].ContextMap()
	if programs := fields["programs"].([]any); len(programs) != 1 || programs[0] != "nft[2]" || fields["rows"] != int64(3) {
		t.Errorf("log %v", fields)
	}
}

// A write by a socket of the agent causes no reading, also if another program has its PID.
func TestTableWatcherKnowsOwnWritesByPort(t *testing.T) {
	if repairs, logged := watched(t, []nftables.Writer{{Port: 7, PID: 1, Program: "x"}}, 3, nil); repairs != 0 || len(logged) != 0 {
		t.Errorf("%d repairs, log %v", repairs, logged)
	}
}

// Lost notifications may have been of any program.
func TestTableWatcherReadsAfterLostNotifications(t *testing.T) {
	if repairs, logged := watched(t, []nftables.Writer{{}}, 0, nil); repairs != 1 || len(logged) != 0 {
		t.Errorf("%d repairs, log %v", repairs, logged)
	}
}

func TestTableWatcherLogsFailures(t *testing.T) {
	if repairs, logged := watched(t, []nftables.Writer{{Port: 8}}, 0, errors.New("planned")); repairs != 1 || len(logged) != 1 {
		t.Errorf("%d repairs, log %v", repairs, logged)
	}
}

// Readings that find nothing come ever more seldom, until one finds a loss.
func TestTableWatcherRestsAfterVainReadings(t *testing.T) {
	var w TableWatcher
	var got []time.Duration
	for i := range 8 {
		got = append(got, w.rest(time.Second, i == 6)/time.Second)
	}
	if want := []time.Duration{1, 2, 4, 8, 16, 16, 0, 1}; !slices.Equal(got, want) {
		t.Errorf("rests %v, want %v", got, want)
	}
}
