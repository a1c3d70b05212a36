package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/kube-ipvs/kube-ipvs/internal/testkit/golden"
)

const flagsPage = `# Flags and fields

Which settings are there, and what are their defaults? This page is generated from the table of
settings in ` + "`internal/config`" + ` (` + "`go test ./internal/config -update`" + `).
[Settings](settings.md) explains how the agent is started, what some settings cause, and how the
file is written.

A flag overrides the field of the file. Fields with a dot are inside a group: ` + "`ipvs.scheduler`" + ` is
the field ` + "`scheduler`" + ` of ` + "`ipvs`" + `. Fields of ` + "`KubeIPVSConfiguration`" + ` are in italics, all others are of
` + "`KubeProxyConfiguration`" + `.
`

// The page of flags and fields is the table of settings.
func TestFlagsPage(t *testing.T) {
	own := map[string]bool{}
	for _, s := range ownSettings {
		own[s.field] = true
	}
	defaults := Defaults()
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	Bind(flags, &defaults)
	var b strings.Builder
	b.WriteString(flagsPage)
	for _, g := range Groups() {
		fmt.Fprintf(&b, "\n## %s\n\n| flag | field | default | meaning |\n|---|---|---|---|\n", g)
		for _, list := range [][]setting{lineSettings, proxySettings, ownSettings} {
			for _, s := range list {
				if s.group == g && s.usage != "" {
					b.WriteString(pageRow(s, flags.Lookup(s.flag).DefValue, own[s.field]))
				}
			}
		}
	}
	golden.Check(t, "../../../manifests/docs/flags.md", b.String())
}

func pageRow(s setting, value string, own bool) string {
	field := s.field
	if field != "" {
		field = "`" + field + "`"
	}
	if own {
		field = "*" + field + "*"
	}
	switch value {
	case "[]", "":
		value = ""
	default:
		value = "`" + value + "`"
	}
	return fmt.Sprintf("| `%s` | %s | %s | %s |\n", dashed(s.flag), field, value, strings.ReplaceAll(s.usage, "|", `\|`))
}

func dashed(flag string) string {
	if len(flag) == 1 {
		return "-" + flag
	}
	return "--" + flag
}
