package tune_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/tune"
)

// FuzzJournal: with a journal of another program, or half of one, cleanup writes only sysctls that
// exist.
func FuzzJournal(f *testing.F) {
	f.Add([]byte(`{"net.ipv4.ip_forward": {"old": "0", "ours": "1"}}`))
	f.Add([]byte(`{"../../../secret": {"old": "0", "ours": "mine"}, "net/../../../secret": {"old": "", "ours": "mine"}}`))
	f.Add([]byte(`{"net.ipv4.ip_forward": {"old": "0", "ours"`))
	f.Add([]byte(`null`))
	f.Add([]byte(`{"": {}, ".": {}, "/": {}, "....": {}, "net.ipv4.none": {"old": "1"}}`))
	f.Fuzz(func(t *testing.T, journal []byte) {
		n := node{root: t.TempDir(), run: t.TempDir()}
		n.file(t, "secret", "mine")
		n.sysctl(t, key, "1")
		writeFile(t, filepath.Join(n.run, "sysctls.json"), string(journal), 0o600)
		tune.New(zap.NewNop(), tune.Options{Root: n.root, RunDir: n.run}).Restore(t.Context())
		n.wantFile(t, "secret", "mine")
		err := filepath.WalkDir(n.root, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && path != n.path("secret") && path != n.path(sysctlFile(key)) {
				t.Errorf("%s was made", strings.TrimPrefix(path, n.root))
			}
			return err
		})
		if _, statErr := os.Stat(n.path(sysctlFile(key))); err != nil || statErr != nil {
			t.Errorf("errors %v, %v", err, statErr)
		}
	})
}
