//go:build !linux

package rules

import "context"

// LegacyThere is false.
func LegacyThere(Options) bool { return false }

// FilterTables finds none: there are no tables on this operating system.
func FilterTables(context.Context, Options, map[Family]bool) []FilterTable { return nil }
