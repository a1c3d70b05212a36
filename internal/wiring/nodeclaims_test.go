package wiring

import (
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestNodeClaimsReachTheNextProcess(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	dir := filepath.Join(t.TempDir(), "run")
	f := NewNodeClaims(zap.New(core), dir)
	if got := f.Load(); len(got) != 0 || logs.Len() != 0 {
		t.Fatalf("the first process finds %v, %d lines", got, logs.Len())
	}
	want := map[netip.Addr]string{netip.MustParseAddr("192.0.2.12"): "node-b", netip.MustParseAddr("2001:db8::12"): "node-b"}
	f.Keep(want)
	if got := f.Load(); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	f.Keep(nil)
	if _, err := os.Stat(f.path); !os.IsNotExist(err) {
		t.Errorf("the file of no claims: %v", err)
	}
	if err := os.WriteFile(f.path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := f.Load(); got != nil || logs.Len() != 1 {
		t.Errorf("a broken file: %v, %d lines", got, logs.Len())
	}
}
