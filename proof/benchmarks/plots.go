package main

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	gonum "gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

type plotted struct{ title, file string }

// A point of a line has the minimum and the maximum of its rounds.
type point struct {
	x float64
	y spread
}

type lines map[string][]point

// plot draws the plots that have figures.
func plot(folder string, all []Result) ([]plotted, error) {
	byN, byHosts, byTimers, byTime := lines{}, lines{}, lines{}, lines{}
	for _, r := range all {
		for _, f := range r.Figures {
			if strings.HasSuffix(f.Case, again) {
				continue
			}
			switch r.Group.Plot {
			case "n":
				byN.add("tickslot, "+after(r.Group.Name, ", "), number(f.Case), f.Value)
			case "n-naive":
				if strings.HasSuffix(f.Case, "naive") {
					byN.add("naive loop, 90 % held", number(f.Case), f.Value)
				}
			case "hosts":
				byHosts.add(f.Case, number(r.Group.Name), f.Value)
			case "timers":
				byTimers.add(strings.TrimSuffix(f.Case, ", metrics on"), number(after(r.Group.Name, ", ")), f.Value)
			case "million":
				byTimers.add("tickslot", 1_000_000, f.Extra["µs/fire"])
			case "xmin":
				for key, rate := range f.Extra {
					if at, ok := strings.CutPrefix(key, byTimePrefix); ok {
						byTime.add(f.Case, seconds(at), rate)
					}
				}
			}
		}
	}
	var list []plotted
	for _, p := range []struct {
		plotted
		x, y   string
		lines  lines
		linear bool
	}{
		{plotted{"An attempt by the number of slots", "n.svg"}, "slots of the timer (N)", "µs (p50), c=1", byN, false},
		{plotted{"An attempt by the number of hosts", "hosts.svg"}, "hosts that try each tick of one timer, N=5",
			"µs CPU of Redis per attempt", byHosts, false},
		{plotted{"A fire by the number of timers", "timers.svg"}, "timers of one process, periods 1 to 10 s",
			"µs CPU per fire", byTimers, false},
		{plotted{fmt.Sprintf("%d runs/s beside a transaction that holds xmin", offeredRate), "xmin.svg"},
			"seconds since it began", "runs/s", byTime, true},
	} {
		if len(p.lines) == 0 {
			continue
		}
		if err := p.lines.draw(p.title, p.x, p.y, filepath.Join(folder, p.file), p.linear); err != nil {
			return nil, err
		}
		list = append(list, p.plotted)
	}
	more, err := plotBars(folder, all)
	return append(list, more...), err
}

func (l lines) add(name string, x float64, y spread) { l[name] = append(l[name], point{x, y}) }

func (l lines) draw(title, x, y, file string, linear bool) error {
	p := gonum.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	if !linear {
		p.X.Scale, p.Y.Scale = gonum.LogScale{}, gonum.LogScale{}
		p.X.Tick.Marker, p.Y.Tick.Marker = gonum.LogTicks{Prec: -1}, gonum.LogTicks{Prec: -1}
	}
	p.Legend.Top, p.Legend.Left = true, true
	p.Add(plotter.NewGrid())
	for i, name := range slices.Sorted(maps.Keys(l)) {
		points := slices.SortedFunc(slices.Values(l[name]), func(a, b point) int { return cmp.Compare(a.x, b.x) })
		var s series
		for _, at := range points {
			s.XYs = append(s.XYs, plotter.XY{X: at.x, Y: at.y.Median})
			s.YErrors = append(s.YErrors, struct{ Low, High float64 }{at.y.Median - at.y.Min, at.y.Max - at.y.Median})
		}
		line, dots, err := plotter.NewLinePoints(s.XYs)
		if err != nil {
			return err
		}
		bars, err := plotter.NewYErrorBars(s)
		if err != nil {
			return err
		}
		line.Color, dots.Color, bars.Color = plotutil.Color(i), plotutil.Color(i), plotutil.Color(i)
		dots.Shape = plotutil.Shape(i)
		p.Add(line, dots, bars)
		p.Legend.Add(name, line, dots)
	}
	// A log scale needs whole decades, and the legend needs room.
	if linear {
		p.X.Min, p.Y.Min, p.Y.Max = 0, 0, 1.5*p.Y.Max
	} else {
		p.Y.Min, p.Y.Max = decade(p.Y.Min, math.Floor), 10*decade(p.Y.Max, math.Ceil)
	}
	return p.Save(18*vg.Centimeter, 11*vg.Centimeter, file)
}

type series struct {
	plotter.XYs
	plotter.XErrors
	plotter.YErrors
}

var digits = regexp.MustCompile(`\d+`)

// number returns the first number in a text.
func number(text string) float64 {
	n, _ := strconv.ParseFloat(digits.FindString(text), 64)
	return n
}

// seconds parses minutes:seconds.
func seconds(text string) float64 {
	minutes, rest, _ := strings.Cut(text, ":")
	return 60*number(minutes) + number(rest)
}

func after(text, sep string) string {
	_, rest, _ := strings.Cut(text, sep)
	return rest
}
