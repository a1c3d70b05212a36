package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"

	"go.uber.org/zap"
)

// nodeClaims is the file with the addresses that Services claim and a Node has or had, with the name of the Node. A process
// that starts while that Node is gone does not bind them either.
type nodeClaims struct {
	log  *zap.Logger
	path string
}

func newNodeClaims(log *zap.Logger, runDir string) nodeClaims {
	return nodeClaims{log.Named("agent"), filepath.Join(runDir, "node-claims.json")}
}

// load returns what the process before has kept. A file that cannot be read is told, and is none: Nodes that are there say
// themselves what they have.
func (f nodeClaims) load() map[netip.Addr]string {
	var out map[netip.Addr]string
	b, err := os.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(b, &out)
	}
	if err != nil {
		f.log.Warn("addresses of nodes that the process before knew cannot be read", zap.String("path", f.path), zap.Error(err))
		return nil
	}
	return out
}

// keep replaces the file. It is written seldom: when a Service comes to claim an address of a Node, or does so no more.
func (f nodeClaims) keep(addrs map[netip.Addr]string) {
	if err := f.write(addrs); err != nil {
		f.log.Warn("addresses of nodes cannot be kept for the next process", zap.String("path", f.path), zap.Error(err))
	}
}

func (f nodeClaims) write(addrs map[netip.Addr]string) error {
	if len(addrs) == 0 {
		if err := os.Remove(f.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove: %w", err)
		}
		return nil
	}
	b, err := json.MarshalIndent(addrs, "", "  ")
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(f.path), 0o755); err != nil {
		return fmt.Errorf("make the run directory: %w", err)
	}
	next := f.path + ".next"
	if err := os.WriteFile(next, append(b, '\n'), 0o644); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return os.Rename(next, f.path)
}
