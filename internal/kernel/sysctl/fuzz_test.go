package sysctl_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/sysctl"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/nodefs"
)

// FuzzJournal: a journal that another program wrote, or half of one, makes cleanup write
// nothing but sysctls that are there.
func FuzzJournal(f *testing.F) {
	f.Add([]byte(`{"net.ipv4.ip_forward": {"old": "0", "ours": "1"}}`))
	f.Add([]byte(`{"../../../secret": {"old": "0", "ours": "mine"}, "net/../../../secret": {"old": "", "ours": "mine"}}`))
	f.Add([]byte(`{"net.ipv4.ip_forward": {"old": "0", "ours"`))
	f.Add([]byte(`null`))
	f.Add([]byte(`{"": {}, ".": {}, "/": {}, "....": {}, "net.ipv4.none": {"old": "1"}}`))
	f.Fuzz(func(t *testing.T, journal []byte) {
		n := node{nodefs.Node{Root: t.TempDir(), Run: t.TempDir()}}
		n.File(t, "secret", "mine")
		n.Sysctl(t, key, "1")
		nodefs.WriteFile(t, filepath.Join(n.Run, "sysctls.json"), string(journal), 0o600)
		sysctl.New(zap.NewNop(), sysctl.Options{Files: n.Files(), RunDir: n.Run}).Restore(t.Context())
		n.WantFile(t, "secret", "mine")
		err := filepath.WalkDir(n.Root, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && path != n.Path("secret") && path != n.Path(nodefs.SysctlFile(key)) {
				t.Errorf("%s was made", strings.TrimPrefix(path, n.Root))
			}
			return err
		})
		if _, statErr := os.Stat(n.Path(nodefs.SysctlFile(key))); err != nil || statErr != nil {
			t.Errorf("errors %v, %v", err, statErr)
		}
	})
}
