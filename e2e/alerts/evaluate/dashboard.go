package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
)

// dashboard is what is used of Grafana's JSON model of a dashboard.
type dashboard struct {
	Title      string
	Panels     []panel
	Templating struct {
		List []struct{ Name, Label, AllValue string }
	}
}

// panel is one of a dashboard, in which its names are Grafana's.
type panel struct {
	Type        string      `json:"type"`
	Title       string      `json:"title"`
	GridPos     gridPos     `json:"gridPos"`
	FieldConfig fieldConfig `json:"fieldConfig"`
	Targets     []target    `json:"targets,omitempty"`
}

// gridPos is where a panel is, in a 24th of the width and in rows of 30 pixels.
type gridPos struct {
	X int `json:"x"`
	Y int `json:"y"`
	W int `json:"w"`
	H int `json:"h"`
}

type fieldConfig struct {
	Defaults struct {
		Unit   string   `json:"unit"`
		Min    *float64 `json:"min,omitempty"`
		Custom struct {
			FillOpacity float64 `json:"fillOpacity"`
			Stacking    struct {
				Mode string `json:"mode"`
			} `json:"stacking"`
		} `json:"custom"`
	} `json:"defaults"`
}

type target struct {
	Expr         string `json:"expr"`
	LegendFormat string `json:"legendFormat"`
}

func readDashboard(path string) (*dashboard, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	d := &dashboard{}
	if err := json.Unmarshal(text, d); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return d, nil
}

// variables are the dashboard's own, each with All chosen, and those of Grafana by its rules. $__rate_interval is four scrapes at
// least, so that a rate has two points though one scrape fails (Grafana, Prometheus data source, "Using $__rate_interval").
func (d *dashboard) variables(scraped time.Duration) map[string]string {
	out := map[string]string{
		"__interval":      model.Duration(scraped).String(),
		"__rate_interval": model.Duration(4 * scraped).String(),
	}
	for _, v := range d.Templating.List {
		if v.AllValue != "" {
			out[v.Name] = v.AllValue
		}
	}
	return out
}

var variable = regexp.MustCompile(`\$(?:(\w+)|\{(\w+)\})`)

// fill puts variables in; one that is not known is an error.
func fill(expr string, variables map[string]string) (string, error) {
	var errs []error
	out := variable.ReplaceAllStringFunc(expr, func(found string) string {
		m := variable.FindStringSubmatch(found)
		value, known := variables[m[1]+m[2]]
		if !known {
			errs = append(errs, fmt.Errorf("%s: no variable %s", expr, found))
		}
		return value
	})
	return out, errors.Join(errs...)
}

var placeholder = regexp.MustCompile(`\{\{\s*(\w+)\s*\}\}`)

// legend is a series' name, by the legend format of its target.
func (t target) legend(of labels.Labels) string {
	if t.LegendFormat == "" {
		return of.String()
	}
	return placeholder.ReplaceAllStringFunc(t.LegendFormat, func(found string) string {
		return of.Get(placeholder.FindStringSubmatch(found)[1])
	})
}
