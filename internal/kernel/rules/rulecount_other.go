//go:build !linux

package rules

import "context"

// CountRules is empty.
func CountRules(context.Context, Options) map[Backend]int { return nil }
