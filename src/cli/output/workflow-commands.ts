/** True in a GitHub workflow, whose runner reads commands from what is printed, on stderr as well. */
export function isWorkflow(env: NodeJS.ProcessEnv): boolean {
  return env['GITHUB_ACTIONS'] === 'true';
}

/** Text of others as the runner takes for no command: `::add-mask::` at the beginning of a line, `##[` anywhere. */
export function withoutCommands(text: string): string {
  return text.replace(/^(\s*):(?=:)/gm, '$1: ').replaceAll('##[', '## [');
}
