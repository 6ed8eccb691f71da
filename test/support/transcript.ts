/**
 * A command in a transcript, with its expected output. A transcript is a terminal session that starts in an empty home.
 * A line that begins with `$ ` is a command. The lines up to the next command are the command's output:
 * - A line that begins with `2> ` is on stderr.
 * - `[exit 2]` is the exit code, if the exit code is not 0.
 * - `...` matches any number of lines.
 * - A word in angle brackets, such as `<job>`, matches any value of that kind.
 * - Two or more spaces match any gap of at least two spaces.
 *
 * A line that begins with `# ` is a comment.
 */
export interface Step {
  command: string;
  stdout: string[];
  stderr: string[];
  code: number;
}

const fits: Record<string, string> = {
  job: 'job_[0-9a-hjkmnp-tv-z]{14}',
  task: '[\\w-]+(?:/[\\w.-]+)*',
  home: '/\\S+?/mgw-home-\\w+',
  time: '\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d\\.\\d{3}Z',
  day: '\\d{4}-\\d\\d-\\d\\d',
  clock: '\\d\\d:\\d\\d:\\d\\d',
  size: '\\d+(?:\\.\\d)? [kM]?B',
  n: '\\d+',
  hex: '[0-9a-f]+',
  any: '.*',
};

/** Returns a transcript's steps. */
export function readTranscript(text: string): Step[] {
  const steps: Step[] = [];
  for (const line of text.split('\n')) {
    const step = steps.at(-1);
    if (line.startsWith('$ ')) steps.push({ command: line.slice(2), stdout: [], stderr: [], code: 0 });
    else if (line.startsWith('# ') || line === '') continue;
    else if (step === undefined) throw new Error(`a transcript begins with a command, not with: ${line}`);
    else if (/^\[exit \d+\]$/.test(line)) step.code = Number(line.slice(6, -1));
    else if (line.startsWith('2> ')) step.stderr.push(line.slice(3));
    else step.stdout.push(line);
  }
  return steps;
}

/**
 * Returns a pattern for the output that the given lines of a transcript describe. The output must not contain blank
 * lines.
 */
export function patternOf(lines: readonly string[]): RegExp {
  const parts = lines.map((line) => (line === '...' ? '(?:.*\n)*?' : `${linePattern(line)} *\n`));
  return new RegExp(`^${parts.join('')}$`);
}

function linePattern(line: string): string {
  const escaped = line.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&').replace(/ {2,}/g, ' {2,}');
  return escaped.replace(/<(\w+)>/g, (word, name: string) => fits[name] ?? word);
}

/** Removes blank lines from output, for comparison with a pattern. */
export function withoutBlankLines(text: string): string {
  return text
    .split('\n')
    .filter((line) => line.trim() !== '')
    .map((line) => `${line}\n`)
    .join('');
}
