package config

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"
	logsapi "k8s.io/component-base/logs/api/v1"
)

// Loader makes settings of a parsed command line and of the file that it names, as
// often as the file changes. All methods may be called at any time.
type Loader struct {
	flags *pflag.FlagSet
	path  string // path of the file, "" for none
	pace  pace

	mu sync.Mutex
	// read is the state of the file at the last read (Load, Watch).
	read string
}

// Loaded is what a Loader found.
type Loaded struct {
	Config Config
	// Warnings are for the log: settings in the file or on the command line that have no
	// effect here.
	Warnings []string
	// Overrides are the flags that won over another value in the file.
	Overrides []string
}

// NewLoader takes flags that Bind declared and that were parsed.
func NewLoader(flags *pflag.FlagSet) *Loader {
	l := &Loader{flags: flags, pace: pace{quiet: 100 * time.Millisecond, poll: 30 * time.Second}}
	if f := flags.Lookup("config"); f != nil {
		l.path = f.Value.String()
	}
	return l
}

// Load reads the file, puts the flags that were given over it, and checks the
// outcome. hostname is the host's own name. An error names all mistakes; the
// warnings are there even so.
func (l *Loader) Load(hostname string) (Loaded, error) {
	base, err := l.base()
	if err != nil {
		return Loaded{}, fmt.Errorf("--config: %w", err)
	}
	s := base.settings
	s.ConfigFile = l.path
	overrides, err := l.overlay(&s)
	c, wrong := s.Check(hostname)
	warnings := slices.Concat(base.warnings, s.warnings(c))
	if err := errors.Join(errors.Join(base.mistakes...), err, wrong); err != nil {
		return Loaded{Warnings: warnings}, err
	}
	return Loaded{Config: c, Warnings: warnings, Overrides: overrides}, nil
}

// base has the settings without flags.
func (l *Loader) base() (*fileReader, error) {
	if l.path == "" {
		return &fileReader{settings: Defaults()}, nil
	}
	text, err := os.ReadFile(l.path)
	l.remember(fingerprint(text, err))
	if err != nil {
		return nil, err
	}
	r, err := readFile(l.path, text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", l.path, err)
	}
	return r, nil
}

// overlay gives the settings the flags of the command line, and returns which of
// them the file has others.
func (l *Loader) overlay(s *Settings) (overrides []string, err error) {
	s.given = map[string]bool{}
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	fs.SetNormalizeFunc(Dashes)
	Bind(fs, s)
	BindPlan(fs, s)
	l.flags.VisitAll(func(f *pflag.Flag) {
		to := fs.Lookup(f.Name)
		if !f.Changed || to == nil {
			return
		}
		s.given[to.Name] = true
		before := to.Value.String()
		if list, ok := byFlag[to.Name].at(s).(*logsapi.VModuleConfiguration); ok {
			*list = nil // setting it would only add
		}
		if e := copyValue(to.Value, f.Value); e != nil {
			err = errors.Join(err, fmt.Errorf("--%s: %w", f.Name, e))
		}
		if s.overrides(to, before) {
			overrides = append(overrides, "--"+to.Name)
		}
	})
	slices.Sort(overrides)
	return overrides, err
}

// overrides reports whether a flag replaced another value from the file. Gates come as a list that
// is laid over those of the file, and a listener that is switched off has an address in it.
func (s *Settings) overrides(f *pflag.Flag, before string) bool {
	switch f.Name {
	case "feature-gates":
		return s.said["featureGates"]
	case "ipvs-tcp-timeout":
		return (s.said["ipvs.tcpTimeout"] || s.said["ipvsTimeouts"]) && f.Value.String() != before
	case "healthz-port":
		return s.HealthzPort == 0 && s.said["healthzBindAddress"]
	case "metrics-port":
		return s.MetricsPort == 0 && s.said["metricsBindAddress"]
	}
	return s.said[byFlag[f.Name].field] && f.Value.String() != before
}

// unused names the settings that were given and change nothing here: flags, and
// fields of the file that are not as they are when nothing is said.
func (s *Settings) unused() []string {
	var out []string
	ordinary := Defaults()
	for _, list := range [][]setting{proxySettings, lineSettings} {
		for _, row := range list {
			switch {
			case row.group != Unused:
			case s.given[row.flag]:
				out = append(out, "--"+row.flag)
			case s.said[row.field] && !reflect.DeepEqual(row.at(s), row.at(&ordinary)):
				out = append(out, row.field)
			}
		}
	}
	return out
}

// warnings are those that the settings as a whole deserve, one for each matter.
func (s *Settings) warnings(c Config) []string {
	var out []string
	if len(c.Unused) > 0 {
		out = append(out, "settings without effect in kube-ipvs: "+strings.Join(c.Unused, ", "))
	}
	if list := foreignGates(c.effective.Proxy.FeatureGates); len(list) > 0 {
		out = append(out, "feature gates that kube-ipvs does not have, ignored: "+strings.Join(list, ", "))
	}
	if c.ReadyzWatchBound > 0 && c.ReadyzWatchBound < signOfLife {
		out = append(out, fmt.Sprintf("%s: shorter than the one minute between bookmarks of an idle watch, so /readyz will fail at times", s.with("readyz-watch-bound", c.ReadyzWatchBound.String())))
	}
	out = append(out, s.idleModeSettings(c)...)
	out = append(out, s.idleBinding(c)...)
	for _, name := range []string{"healthz", "metrics"} {
		if s.given[name+"-port"] {
			out = append(out, fmt.Sprintf("--%s-port is deprecated, use --%[1]s-bind-address", name))
		}
	}
	return out
}

// signOfLife is how long a watch on which nothing happens may be silent: the API server
// sends a bookmark about once a minute.
const signOfLife = 65 * time.Second

// copyValue sets a flag to what another one has.
func copyValue(to, from pflag.Value) error {
	if list, ok := from.(pflag.SliceValue); ok {
		if out, ok := to.(pflag.SliceValue); ok {
			return out.Replace(list.GetSlice())
		}
	}
	return to.Set(from.String())
}
