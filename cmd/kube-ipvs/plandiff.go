package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/source/file"
)

// diffPlans prints the rows that would change if the manifests of another directory were
// applied instead of those of --source-dir. What of them is not served goes to problems.
func diffPlans(c config.Config, against string, show []string, out, problems io.Writer) error {
	if err := checkKinds(show); err != nil {
		return err
	}
	if c.SourceDir == "" {
		return errNoSource
	}
	now, err := planTexts(c, c.SourceDir, show, io.Discard, problems)
	if err != nil {
		return err
	}
	next, err := planTexts(c, against, show, problems, problems)
	if err != nil {
		return fmt.Errorf("--diff-against: %w", err)
	}
	for _, kind := range show {
		if _, err := printDiff(out, kind, c.Mode, now[kind], next[kind]); err != nil {
			return err
		}
	}
	return nil
}

// planTexts are the desired rows of the manifests of a directory, by kind.
func planTexts(c config.Config, dir string, show []string, notes, problems io.Writer) (map[string]string, error) {
	objects, bad, err := file.Load(dir)
	if err != nil {
		return nil, err
	}
	if err := reportProblems(bad, problems); err != nil {
		return nil, err
	}
	mode := planned(c, objects, notes)
	out := map[string]string{}
	for _, kind := range show {
		var b strings.Builder
		if err := mode.WriteRows(&b, kind); err != nil {
			return nil, err
		}
		out[kind] = b.String()
	}
	return out, nil
}
