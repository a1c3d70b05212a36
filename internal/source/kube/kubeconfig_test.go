package kube

import (
	"encoding/pem"
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Files that the kubelet did not mount are named, with a remedy.
func TestInCluster(t *testing.T) {
	tests := []struct {
		name, host, port string
		files            map[string]string
		words            []string
	}{
		{"nothing mounted", "10.96.0.1", "443", nil, []string{"ca.crt", "automountServiceAccountToken", "--kubeconfig"}},
		{"no token", "10.96.0.1", "443", map[string]string{"ca.crt": pemText}, []string{"token", "automountServiceAccountToken"}},
		{"no CA", "10.96.0.1", "443", map[string]string{"token": "t"}, []string{"ca.crt", "automountServiceAccountToken"}},
		{"CA garbage", "10.96.0.1", "443", map[string]string{"token": "t", "ca.crt": "x"}, []string{"ca.crt", "no certificate in PEM form"}},
		{"token empty", "10.96.0.1", "443", map[string]string{"token": " ", "ca.crt": pemText}, []string{"token", "the file is empty"}},
		{"fine", "10.96.0.1", "443", map[string]string{"token": "t", "ca.crt": pemText}, nil},
		{"fine with IPv6", "fd00::1", "443", map[string]string{"token": "t", "ca.crt": pemText}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range tt.files {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			config, err := inCluster(tt.host, tt.port, dir)
			if err != nil {
				t.Fatal(err)
			}
			err = checkConfig(config, ClientOptions{})
			if (err == nil) != (tt.words == nil) {
				t.Fatalf("error %v", err)
			}
			for _, w := range tt.words {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error %q does not mention %q", err, w)
				}
			}
		})
	}
	for _, part := range [][2]string{{"", "443"}, {"10.96.0.1", ""}} {
		if _, err := inCluster(part[0], part[1], t.TempDir()); !errors.Is(err, ErrNoCluster) {
			t.Errorf("host %q, port %q: %v", part[0], part[1], err)
		}
	}
}

// pemText is some certificate.
var pemText = func() string {
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
}()
