package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
)

// decoder reads one document field by field, by the table of settings. One field
// that cannot be read does not hide what is wrong with the others.
type decoder struct {
	rows     []setting
	settings *Settings
	raw      json.RawMessage

	unknown  []error
	mistakes []error
}

func (d *decoder) decode() { d.object("", d.raw) }

// object walks the fields below a path.
func (d *decoder) object(path string, raw json.RawMessage) {
	if isNull(raw) {
		return
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		d.mistakes = append(d.mistakes, fmt.Errorf("%s: %s is not a group of settings", path, brief(raw)))
		return
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		d.field(join(path, name), fields[name])
	}
}

func (d *decoder) field(path string, raw json.RawMessage) {
	switch row, kind := d.find(path); kind {
	case leaf:
		d.value(row, raw)
	case group:
		d.object(path, raw)
	case head:
	default:
		d.unknown = append(d.unknown, fmt.Errorf("%s: unknown field%s", path, d.meant(path)))
	}
}

// value sets one setting; null leaves it empty.
func (d *decoder) value(row setting, raw json.RawMessage) {
	if isNull(raw) {
		return
	}
	to := row.at(d.settings)
	if err := json.Unmarshal(raw, to); err != nil {
		reflect.ValueOf(to).Elem().SetZero() // a value that is half read would be a second mistake
		d.mistakes = append(d.mistakes, fmt.Errorf("%s: %s is not %s%s", row.field, brief(raw), wanted(to), hint(row, raw)))
		return
	}
	if says(to, raw) {
		d.settings.said[row.field] = true
	}
}

// The meaning of a path in the table.
type pathKind int

const (
	nothing pathKind = iota
	head             // apiVersion or kind
	leaf
	group
)

func (d *decoder) find(path string) (setting, pathKind) {
	if path == "apiVersion" || path == "kind" {
		return setting{}, head
	}
	kind := nothing
	for _, row := range d.rows {
		switch {
		case row.field == path:
			return row, leaf
		case strings.HasPrefix(row.field, path+"."):
			kind = group
		}
	}
	return setting{}, kind
}

// meant helps who wrote a field in the wrong case, or at the wrong place.
func (d *decoder) meant(path string) string {
	last := path[strings.LastIndexByte(path, '.')+1:]
	for _, list := range [][]setting{d.rows, proxySettings, ownSettings} {
		for _, row := range list {
			end := row.field[strings.LastIndexByte(row.field, '.')+1:]
			if strings.EqualFold(end, last) && row.group != Unused {
				return ", is " + row.field + documentOf(row, d.rows) + " meant?"
			}
		}
	}
	return ""
}

// documentOf names the document of a setting that is not of this one.
func documentOf(row setting, rows []setting) string {
	if slices.ContainsFunc(rows, func(r setting) bool { return r.field == row.field }) {
		return ""
	}
	if slices.ContainsFunc(ownSettings, func(r setting) bool { return r.field == row.field }) {
		return " of " + OwnKind
	}
	return " of " + proxyKind
}

// wanted describes the values that a setting takes.
func wanted(to any) string {
	switch to.(type) {
	case *string:
		return "a text; put it in quotes"
	case *bool, **bool:
		return "true or false"
	case *int32, **int32, *logsapi.VerbosityLevel:
		return "a whole number of 32 bits"
	case *float32:
		return "a number"
	case *metav1.Duration, **metav1.Duration, *logsapi.TimeOrMetaDuration:
		return "a duration such as 30s, 5m or 1h"
	case *[]string:
		return "a list of texts"
	case *map[string]bool:
		return "a list of names, each with true or false"
	}
	return "a value that kube-proxy accepts here"
}

// brief is a value as it can be shown in a line.
func brief(raw json.RawMessage) string {
	const most = 60
	if len(raw) > most {
		return string(raw[:most]) + "..."
	}
	return string(raw)
}

func isNull(raw json.RawMessage) bool { return bytes.Equal(raw, []byte("null")) }

// says reports whether a value differs from no value. A value that may be null always does, and so
// does a false, which may be intended.
func says(to any, raw json.RawMessage) bool {
	switch to.(type) {
	case **bool, **int32, **metav1.Duration:
		return true
	}
	return !slices.Contains([]string{`""`, `0`, `"0"`, `"0s"`, `[]`, `{}`}, string(raw))
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
