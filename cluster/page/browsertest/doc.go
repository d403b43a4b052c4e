// Package browsertest looks at the operator's page in a headless Chromium: three processes on a
// real store, each page in light and dark, narrow and wide, what changes while somebody looks, and
// what an operator does. All of it is tests, and a module of its own, so that nobody else downloads
// a driver of browsers.
package browsertest
