package httpd

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// The z-pages are text for people, and an object for those who ask for one by its group, version
// and kind (KEP-4827, KEP-4828). Upstream picks the delimiter of the text at random from four, so
// that programs do not parse it; this one always picks the same of the four.
const (
	zHeader = "\n%s %s\n" +
		"Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.\n"
	zGroup = "config.k8s.io"
)

// zObject is the head of the structured form.
type zObject struct {
	Kind       string `json:"kind"`
	APIVersion string `json:"apiVersion"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
}

type flagzObject struct {
	zObject
	Flags map[string]string `json:"flags,omitempty"`
}

type statuszObject struct {
	zObject
	StartTime        string   `json:"startTime"`
	UptimeSeconds    int64    `json:"uptimeSeconds"`
	GoVersion        string   `json:"goVersion"`
	BinaryVersion    string   `json:"binaryVersion"`
	EmulationVersion string   `json:"emulationVersion,omitempty"`
	Paths            []string `json:"paths"`
}

func newZObject(kind, version string) zObject {
	o := zObject{Kind: kind, APIVersion: zGroup + "/" + version}
	o.Metadata.Name = component
	return o
}

func flagz(read func() [][2]string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		flags := slices.SortedFunc(slices.Values(read()), func(a, b [2]string) int { return strings.Compare(a[0], b[0]) })
		sendPage(w, r, "Flagz", func() string { return flagzText(flags) }, func(version string) any {
			o := flagzObject{zObject: newZObject("Flagz", version), Flags: make(map[string]string, len(flags))}
			for _, f := range flags {
				o.Flags[f[0]] = f[1]
			}
			return o
		})
	}
}

func flagzText(flags [][2]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, zHeader, component, "flagz")
	for _, f := range flags {
		fmt.Fprintf(&b, "%s=%s\n", f[0], f[1])
	}
	return b.String()
}

func statusz(read func() StatusInfo, paths []string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s := read()
		sendPage(w, r, "Statusz", func() string { return statuszText(s, paths) }, func(version string) any {
			return statuszObject{
				zObject:          newZObject("Statusz", version),
				StartTime:        s.Started.UTC().Format(time.RFC3339),
				UptimeSeconds:    seconds(s.Uptime),
				GoVersion:        s.GoVersion,
				BinaryVersion:    s.Version,
				EmulationVersion: s.Emulation,
				Paths:            paths,
			}
		})
	}
}

func statuszText(s StatusInfo, paths []string) string {
	up := seconds(s.Uptime)
	emulation := ""
	if s.Emulation != "" {
		emulation = "Emulation version: " + s.Emulation
	}
	lines := []string{
		"",
		"Started: " + s.Started.Format(time.UnixDate),
		fmt.Sprintf("Up: %d hr %02d min %02d sec", up/3600, up/60%60, up%60),
		"Go version: " + s.GoVersion,
		"Binary version: " + s.Version,
		emulation, // an empty line when there is none
		"Paths: " + strings.Join(paths, " "),
		"",
	}
	return fmt.Sprintf(zHeader, component, "statusz") + strings.Join(lines, "\n")
}

// seconds are whole ones, and none when the clock was set back.
func seconds(d time.Duration) int64 { return max(0, int64(d/time.Second)) }

// sendPage answers in the form that was asked for.
func sendPage(w http.ResponseWriter, r *http.Request, kind string, text func() string, object func(version string) any) {
	version, ok := negotiate(r.Header.Get("Accept"), kind)
	switch {
	case !ok:
		sendNotAcceptable(w)
	case version == "":
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte(text()))
	default:
		if version == "v1alpha1" {
			w.Header().Set("Warning", fmt.Sprintf(`299 - "This version of the %s endpoint is deprecated. Please use a newer version."`, strings.ToLower(kind)))
		}
		w.Header().Set("Content-Type", fmt.Sprintf("application/json;g=%s;v=%s;as=%s", zGroup, version, kind))
		_ = json.NewEncoder(w).Encode(object(version)) // text and numbers: only the client can fail
	}
}
