package config

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
)

// groupKey is the annotation of a flag that names its Group.
const groupKey = "kube-ipvs.io/group"

// Bind declares every flag of kube-proxy, and ours, with what s holds as their defaults. Flags that
// are deprecated or have no effect here are hidden from help.
func Bind(fs *pflag.FlagSet, s *Settings) {
	fs.SortFlags = false
	for _, list := range [][]setting{lineSettings, proxySettings, ownSettings} {
		bindAll(fs, s, list)
	}
}

// BindPlan declares the flags that the verb plan has beside all others.
func BindPlan(fs *pflag.FlagSet, s *Settings) { bindAll(fs, s, planSettings) }

// Dashes accepts underscores in flag names, as kube-proxy does.
func Dashes(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	return pflag.NormalizedName(strings.ReplaceAll(name, "_", "-"))
}

// GroupOf is the heading under which help shows a flag; empty for one that is not
// of Bind.
func GroupOf(f *pflag.Flag) Group {
	if g := f.Annotations[groupKey]; len(g) > 0 {
		return Group(g[0])
	}
	return ""
}

func bindAll(fs *pflag.FlagSet, s *Settings, list []setting) {
	for _, row := range list {
		if row.flag == "" {
			continue
		}
		row.bind(fs, s)
		f := fs.Lookup(row.flag)
		f.Hidden = row.group == Deprecated || row.group == Unused
		f.Annotations = map[string][]string{groupKey: {string(row.group)}}
	}
}

// bind declares one flag by the type of what it sets.
func (row setting) bind(fs *pflag.FlagSet, s *Settings) {
	if row.flag == "ipvs-tcp-timeout" { // it takes a word, too, that the file keeps elsewhere
		fs.Var(tcpTimeout{s}, row.flag, row.usage)
		return
	}
	switch p := row.at(s).(type) {
	case *string:
		fs.StringVar(p, row.flag, *p, row.usage)
	case *bool:
		fs.BoolVar(p, row.flag, *p, row.usage)
	case **bool:
		fs.BoolVar(*p, row.flag, **p, row.usage)
	case *int32:
		fs.Int32Var(p, row.flag, *p, row.usage)
	case **int32:
		fs.Int32Var(*p, row.flag, **p, row.usage)
	case *float32:
		fs.Float32Var(p, row.flag, *p, row.usage)
	case *[]string:
		fs.StringSliceVar(p, row.flag, *p, row.usage)
	case *map[string]bool: // read by Check, with what else may be wrong
		fs.StringSliceVar(&s.FeatureGates, row.flag, s.FeatureGates, row.usage)
	default:
		row.bindKubernetes(fs, p)
	}
}

// bindKubernetes declares flags whose types are Kubernetes' own.
func (row setting) bindKubernetes(fs *pflag.FlagSet, p any) {
	switch p := p.(type) {
	case *metav1.Duration:
		fs.DurationVar(&p.Duration, row.flag, p.Duration, row.usage)
	case **metav1.Duration:
		fs.DurationVar(&(*p).Duration, row.flag, (*p).Duration, row.usage)
	case *logsapi.TimeOrMetaDuration:
		fs.DurationVar(&p.Duration.Duration, row.flag, p.Duration.Duration, row.usage)
	case *logsapi.VerbosityLevel:
		fs.VarP(verbosity{p}, row.flag, row.flag, row.usage)
	case *logsapi.VModuleConfiguration:
		fs.Var(logsapi.VModuleConfigurationPflag(p), row.flag, row.usage)
	case *resource.QuantityValue:
		fs.Var(p, row.flag, row.usage)
	default:
		panic(fmt.Sprintf("flag %s: unsupported type %T", row.flag, p))
	}
}

// verbosity is the flag -v: a number, told as one in help.
type verbosity struct{ level *logsapi.VerbosityLevel }

// Set implements pflag.Value.
func (v verbosity) Set(text string) error {
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return fmt.Errorf("%q is not a number of 0 or more", text)
	}
	*v.level = logsapi.VerbosityLevel(n)
	return nil
}

// String implements pflag.Value.
func (v verbosity) String() string {
	if v.level == nil {
		return "0"
	}
	return strconv.FormatUint(uint64(*v.level), 10)
}

// Type implements pflag.Value.
func (v verbosity) Type() string { return "int" }
