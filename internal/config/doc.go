// Package config reads and checks the agent's settings once, and reports all
// mistakes together, each with the flag it came by.
//
// Settings are what was written, as text and numbers; Config is what it means.
// Nothing downstream sees Settings, and nobody changes a Config.
package config
