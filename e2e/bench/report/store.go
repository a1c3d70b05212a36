package report

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// Name is the file of a result.
func (r *Result) Name() string { return fmt.Sprintf("result-%05d-%s.json", r.Services, r.Candidate) }

// Save writes the result to a directory, over an earlier one. A reader sees either of the two, never a part.
func (r *Result) Save(dir string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("write result %s: %w", r.Name(), err)
	}
	path := filepath.Join(dir, r.Name())
	if err := os.WriteFile(path+".new", append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// ErrNoResults means that a directory holds no results.
var ErrNoResults = errors.New("no results: run the benchmark first")

// Load reads all results of a directory: by number of Services, then in the order in which the candidates were first measured.
func Load(dir string) ([]*Result, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "result-*.json"))
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("%s: %w", dir, ErrNoResults)
	}
	var out []*Result
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		c := &Result{}
		if err := json.Unmarshal(text, c); err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		out = append(out, c)
	}
	order(out)
	return out, nil
}

func order(results []*Result) {
	slices.SortFunc(results, func(a, b *Result) int { return a.Began.Compare(b.Began) })
	rank := map[string]int{}
	for _, c := range results {
		if _, known := rank[c.Candidate]; !known {
			rank[c.Candidate] = len(rank)
		}
	}
	slices.SortStableFunc(results, func(a, b *Result) int {
		return cmp.Or(cmp.Compare(a.Services, b.Services), cmp.Compare(rank[a.Candidate], rank[b.Candidate]))
	})
}
