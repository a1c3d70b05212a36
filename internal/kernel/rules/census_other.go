//go:build !linux

package rules

import "context"

// Census is empty.
func Census(context.Context, Options) map[Backend]int { return nil }
