package httpd

import (
	"cmp"
	"encoding/json"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// clause is one choice of an Accept header.
type clause struct {
	kind    string // like text/plain or */*
	params  map[string]string
	quality float64
}

// negotiate reads an Accept header for a z-page: an empty version means text. A structured form
// must be requested in full (group, version and kind), so that no client depends on one without a
// version.
func negotiate(accept, kind string) (version string, ok bool) {
	if strings.TrimSpace(accept) == "" {
		return "", true
	}
	for _, c := range clauses(accept) {
		if version, ok := c.choose(kind); ok {
			return version, true
		}
	}
	return "", false
}

// clauses are sorted by preference; unreadable ones are left out.
func clauses(accept string) []clause {
	var all []clause
	for text := range strings.SplitSeq(accept, ",") {
		kind, params, err := mime.ParseMediaType(text)
		if err != nil {
			continue
		}
		quality := 1.0
		if q, err := strconv.ParseFloat(params["q"], 64); err == nil {
			quality = q
		}
		all = append(all, clause{kind, params, quality})
	}
	slices.SortStableFunc(all, func(a, b clause) int { return cmp.Compare(b.quality, a.quality) })
	return all
}

func (c clause) choose(kind string) (version string, ok bool) {
	as, group, version := c.params["as"], c.params["g"], c.params["v"]
	if as == "" && group == "" && version == "" {
		return "", c.matches("text", "plain")
	}
	known := as == kind && group == zGroup && (version == "v1beta1" || version == "v1alpha1")
	return version, known && c.matches("application", "json")
}

func (c clause) matches(major, minor string) bool {
	return c.kind == major+"/"+minor || c.kind == major+"/*" || c.kind == "*/*"
}

// sendNotAcceptable answers 406 with the object an API client expects.
func sendNotAcceptable(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusNotAcceptable)
	_ = json.NewEncoder(w).Encode(struct {
		Kind       string   `json:"kind"`
		APIVersion string   `json:"apiVersion"`
		Metadata   struct{} `json:"metadata"`
		Status     string   `json:"status"`
		Message    string   `json:"message"`
		Reason     string   `json:"reason"`
		Code       int      `json:"code"`
	}{
		Kind: "Status", APIVersion: "v1", Status: "Failure",
		Message: "only the following media types are accepted: application/json, text/plain",
		Reason:  "NotAcceptable", Code: http.StatusNotAcceptable,
	})
}
