// Package version knows the release, the commit and the platform of this program.
package version
