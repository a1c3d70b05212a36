package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
)

// mostSuggested bounds the names that are suggested for one that is not known.
const mostSuggested = 3

// suggestAt is the distance up to which a name is suggested: two letters are added, left out or
// changed. It is cobra's own default.
const suggestAt = 2

// nearest returns the names that are like a word by the rule that cobra has for verbs, the
// nearest first, and then those that contain the word.
func nearest(word string, names []string) []string {
	finder := &cobra.Command{}
	for _, name := range names {
		finder.AddCommand(&cobra.Command{Use: name, Run: func(*cobra.Command, []string) {}})
	}
	var out []string
	add := func(list ...string) {
		for _, name := range list {
			if !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	for finder.SuggestionsMinimumDistance = range suggestAt + 1 { // the nearest come first
		add(finder.SuggestionsFor(word)...)
	}
	for _, name := range names {
		if len(word) > suggestAt && strings.Contains(name, word) {
			add(name)
		}
	}
	return out[:min(len(out), mostSuggested)]
}

// didYouMean returns the end of a message about an unknown name.
func didYouMean(word string, names []string) string {
	if list := nearest(word, names); len(list) > 0 {
		return "; did you mean " + strings.Join(list, " or ") + "?"
	}
	return ""
}

// flagError adds suggestions to an error about a flag.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || unknown.GetSpecifiedShortnames() != "" {
		return withUsage(cmd, err)
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	word := string(config.Dashes(nil, unknown.GetSpecifiedName()))
	hint := didYouMean(word, names)
	return withUsage(cmd, fmt.Errorf("%w%s", err, strings.ReplaceAll(strings.Replace(hint, "mean ", "mean --", 1), " or ", " or --")))
}

// withUsage adds the line of usage to an error about a command line.
func withUsage(cmd *cobra.Command, err error) error {
	return fmt.Errorf("%w\nusage: %s\nhelp:  %s --help", err, cmd.UseLine(), cmd.CommandPath())
}

// arguments has a check of arguments answer with the line of usage.
func arguments(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return withUsage(cmd, err)
		}
		return nil
	}
}

// noArguments refuses a word that is no verb.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var verbs []string
	for _, c := range cmd.Commands() {
		verbs = append(verbs, c.Name())
	}
	return withUsage(cmd, fmt.Errorf("%q is neither a verb nor a flag%s", args[0], didYouMean(args[0], verbs)))
}
