//go:build !linux

package rules

import "context"

// FilterTables finds none: there are no tables on this operating system.
func FilterTables(context.Context, Options, map[Family]bool) []FilterTable { return nil }
