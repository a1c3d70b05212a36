package vm

import (
	"bufio"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// aptLists are lists of packages that apt can fetch. The zero value is those that this machine has. Those of another suite are kept
// apart, and leave those of the machine as they are.
type aptLists struct {
	options []string
}

// openSuite fetches the lists of a suite of Debian, such as testing or bullseye, into dir.
func openSuite(ctx context.Context, dir, suite string) (aptLists, error) {
	targets, err := output(ctx, dir, "apt-get", "indextargets", "--format", "$(ORIGIN) $(COMPONENT) $(REPO_URI)", "Created-By: Packages")
	if err != nil {
		return aptLists{}, err
	}
	mirror := mirrorOf(targets)
	if mirror == "" {
		return aptLists{}, errors.New("apt has no mirror of Debian here")
	}
	lists := filepath.Join(dir, "apt")
	if err := os.MkdirAll(filepath.Join(lists, "partial"), 0o755); err != nil {
		return aptLists{}, err
	}
	sources := filepath.Join(dir, "sources.list") // not among the lists, where apt-get removes files that it does not know
	if err := os.WriteFile(sources, []byte("deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] "+mirror+" "+suite+" main\n"), 0o644); err != nil {
		return aptLists{}, err
	}
	l := aptLists{options: []string{"-o", "Dir::State::Lists=" + lists, "-o", "Dir::Etc::SourceList=" + sources, "-o", "Dir::Etc::SourceParts=/dev/null",
		"-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache=", "-o", "Acquire::Languages=none"}}
	return l, l.update(ctx, dir)
}

// update reads the lists of packages again.
func (l aptLists) update(ctx context.Context, dir string) error {
	_, err := l.run(ctx, dir, "apt-get", "update")
	return err
}

// depends returns what a package depends on, as apt-cache prints it.
func (l aptLists) depends(ctx context.Context, args ...string) (string, error) {
	return l.run(ctx, "/", "apt-cache", append([]string{"depends"}, args...)...)
}

// download fetches packages into dir.
func (l aptLists) download(ctx context.Context, dir string, packages ...string) error {
	_, err := l.run(ctx, dir, "apt-get", append([]string{"download"}, packages...)...)
	return err
}

func (l aptLists) run(ctx context.Context, dir, tool string, args ...string) (string, error) {
	options := append([]string{"-q", "-o", "APT::Sandbox::User=root"}, l.options...)
	return output(ctx, dir, tool, append(options, args...)...)
}

// mirrorOf picks Debian's own archive out of lines "origin component address".
func mirrorOf(targets string) string {
	for lines := bufio.NewScanner(strings.NewReader(targets)); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) == 3 && fields[0] == "Debian" && fields[1] == "main" && !strings.Contains(fields[2], "security") {
			return fields[2]
		}
	}
	return ""
}
