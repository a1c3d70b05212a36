package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
)

// scrape is what a target told at a moment; nothing if it was down.
type scrape struct {
	at   time.Time
	page []byte
}

// readScrapes reads a directory of pages, each named by its moment in Unix milliseconds.
func readScrapes(dir string) ([]scrape, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []scrape
	for _, f := range files {
		at, err := strconv.ParseInt(f.Name(), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("scrape %s: its name is not a number of milliseconds", f.Name())
		}
		page, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			return nil, err
		}
		out = append(out, scrape{time.UnixMilli(at), page})
	}
	if len(out) < 2 {
		return nil, fmt.Errorf("%s: %d scrapes, want two at least", dir, len(out))
	}
	slices.SortFunc(out, func(a, b scrape) int { return a.at.Compare(b.at) })
	return out, nil
}

// store puts scrapes into a database as Prometheus does: with the labels of their target, and what a scrape no longer has is stale.
func store(ctx context.Context, db *tsdb.DB, scrapes []scrape, target labels.Labels) error {
	before := map[string]labels.Labels{}
	for _, s := range scrapes {
		now := map[string]labels.Labels{}
		app := db.Appender(ctx)
		if err := s.add(app, target, now); err != nil {
			return errors.Join(fmt.Errorf("scrape of %s: %w", s.at, err), app.Rollback())
		}
		for key, series := range before {
			if _, still := now[key]; still {
				continue
			}
			if _, err := app.Append(0, series, s.at.UnixMilli(), math.Float64frombits(value.StaleNaN)); err != nil {
				return errors.Join(fmt.Errorf("stale since %s: %s: %w", s.at, key, err), app.Rollback())
			}
		}
		if err := app.Commit(); err != nil {
			return err
		}
		before = now
	}
	return nil
}

// add appends the samples of one scrape, and notes their series.
func (s scrape) add(app storage.Appender, target labels.Labels, noted map[string]labels.Labels) error {
	p, err := textparse.New(s.page, "text/plain", nil, textparse.ParserOptions{})
	if err != nil {
		return err
	}
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if entry != textparse.EntrySeries {
			continue
		}
		var said labels.Labels
		p.Labels(&said)
		b := labels.NewBuilder(said)
		target.Range(func(l labels.Label) { b.Set(l.Name, l.Value) })
		series := b.Labels()
		_, _, v := p.Series()
		if _, err := app.Append(0, series, s.at.UnixMilli(), v); err != nil {
			return fmt.Errorf("%s: %w", series, err)
		}
		noted[series.String()] = series
	}
}
