package cluster

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
)

// files are the paths of what the API server reads.
type files struct {
	dir      string
	ca       string
	accounts string // the key of ServiceAccounts' tokens
	server   struct{ cert, key string }
}

// writeFiles makes the server's identity and writes it below dir, readable by its owner only.
func writeFiles(dir string, ca *authority, addrs []netip.Addr) (files, error) {
	f := files{dir: dir, ca: filepath.Join(dir, "ca.crt"), accounts: filepath.Join(dir, "accounts.key")}
	f.server.cert, f.server.key = filepath.Join(dir, "server.crt"), filepath.Join(dir, "server.key")
	server, err := ca.server(addrs)
	if err != nil {
		return files{}, err
	}
	accounts, err := newKey()
	if err != nil {
		return files{}, err
	}
	for path, text := range map[string][]byte{
		f.ca: ca.pem, f.accounts: accounts, f.server.cert: server.cert, f.server.key: server.key,
	} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return files{}, fmt.Errorf("write the server's identity: %w", err)
		}
	}
	return f, nil
}
