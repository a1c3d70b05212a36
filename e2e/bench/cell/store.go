package cell

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// Name is the file of a cell.
func (c *Cell) Name() string { return fmt.Sprintf("cell-%05d-%s.json", c.Services, c.Candidate) }

// Save writes the cell below a directory, in the place of what was known before. A reader sees either of the two, never a part.
func (c *Cell) Save(dir string) error {
	text, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return fmt.Errorf("write cell %s: %w", c.Name(), err)
	}
	path := filepath.Join(dir, c.Name())
	if err := os.WriteFile(path+".new", append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// ErrNoCells says that a directory holds none.
var ErrNoCells = errors.New("no cells: run the benchmark first")

// Load reads all cells of a directory: by number of Services, then in the order in which the candidates were first measured.
func Load(dir string) ([]*Cell, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "cell-*.json"))
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("%s: %w", dir, ErrNoCells)
	}
	var out []*Cell
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		c := &Cell{}
		if err := json.Unmarshal(text, c); err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		out = append(out, c)
	}
	order(out)
	return out, nil
}

func order(cells []*Cell) {
	slices.SortFunc(cells, func(a, b *Cell) int { return a.Began.Compare(b.Began) })
	rank := map[string]int{}
	for _, c := range cells {
		if _, known := rank[c.Candidate]; !known {
			rank[c.Candidate] = len(rank)
		}
	}
	slices.SortStableFunc(cells, func(a, b *Cell) int {
		return cmp.Or(cmp.Compare(a.Services, b.Services), cmp.Compare(rank[a.Candidate], rank[b.Candidate]))
	})
}

// Encode is all cells as one text.
func Encode(cells []*Cell) ([]byte, error) {
	text, err := json.MarshalIndent(cells, "", "  ")
	return append(text, '\n'), err
}

// Decode is the other way round.
func Decode(text []byte) (cells []*Cell, err error) {
	if err := json.Unmarshal(text, &cells); err != nil {
		return nil, fmt.Errorf("read cells: %w", err)
	}
	return cells, nil
}
