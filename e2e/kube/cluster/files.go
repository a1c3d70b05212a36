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
	kubelet  struct{ cert, key string } // of the server as a client of kubelets
}

// writeFiles makes the server's identity and writes it below dir, readable by its owner only.
func writeFiles(dir string, ca *authority, addrs []netip.Addr) (files, error) {
	f := files{dir: dir, ca: filepath.Join(dir, "ca.crt"), accounts: filepath.Join(dir, "accounts.key")}
	f.server.cert, f.server.key = filepath.Join(dir, "server.crt"), filepath.Join(dir, "server.key")
	f.kubelet.cert, f.kubelet.key = filepath.Join(dir, "kubelet-client.crt"), filepath.Join(dir, "kubelet-client.key")
	server, err := ca.server(addrs)
	if err != nil {
		return files{}, err
	}
	client, err := ca.client("kube-apiserver-kubelet-client", Admin.Groups...)
	if err != nil {
		return files{}, err
	}
	accounts, err := newKey()
	if err != nil {
		return files{}, err
	}
	for path, text := range map[string][]byte{
		f.ca: ca.pem, f.accounts: accounts, f.server.cert: server.cert, f.server.key: server.key,
		f.kubelet.cert: client.cert, f.kubelet.key: client.key,
	} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return files{}, fmt.Errorf("write the server's identity: %w", err)
		}
	}
	return f, nil
}
