package wiring

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

// NodeClaims is the file of the addresses that Services claim and that a Node has or had, with the name of the Node. A
// process that starts while that Node is gone does not bind them either.
type NodeClaims struct {
	log  *zap.Logger
	path string
}

// NewNodeClaims returns the file in a run directory.
func NewNodeClaims(log *zap.Logger, runDir string) NodeClaims {
	return NodeClaims{log.Named("agent"), filepath.Join(runDir, "node-claims.json")}
}

// Load returns what the previous process kept. A file that cannot be read is logged and counts as empty, because Nodes that
// exist say themselves which addresses they have.
func (f NodeClaims) Load() map[netip.Addr]string {
	var out map[netip.Addr]string
	b, err := os.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(b, &out)
	}
	if err != nil {
		f.log.Warn("cannot read the node addresses that the previous process saved", zap.String("path", f.path), zap.Error(err))
		return nil
	}
	return out
}

// Keep replaces the file. That is rare: when a Service begins or ceases to claim an address of a Node.
func (f NodeClaims) Keep(addrs map[netip.Addr]string) {
	if err := f.write(addrs); err != nil {
		f.log.Warn("cannot save node addresses for the next process", zap.String("path", f.path), zap.Error(err))
	}
}

func (f NodeClaims) write(addrs map[netip.Addr]string) error {
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
		return fmt.Errorf("create the run directory: %w", err)
	}
	next := f.path + ".next"
	if err := os.WriteFile(next, append(b, '\n'), 0o644); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return os.Rename(next, f.path)
}
