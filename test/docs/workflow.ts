import { spawn } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { basename, extname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parse } from 'yaml';
import { cacheHome } from '../support/compile-cache.ts';
import { freshFolder } from '../support/servers.ts';

const actionFolder = fileURLToPath(new URL('../../action', import.meta.url));

type Values = Record<string, string>;
type OnLog = (log: string, interrupt: () => void) => void;

interface Step {
  id?: string;
  if?: string;
  run?: string;
  uses?: string;
  with?: Values;
  env?: Values;
}

interface Workflow {
  name: string;
  env?: Values;
  jobs: Record<string, { steps: Step[] }>;
}

interface Action {
  inputs: Record<string, unknown>;
  runs: { steps: Step[] };
}

/** The result of a workflow run. */
export interface WorkflowRun {
  /** The exit code of the first failed step, or 0 if all steps succeeded. */
  code: number;
  log: string;
  summary: string;
  /** The path of the last job's workspace. */
  workspace: string;
}

/** The variables and values available to the steps of a job or of an action. */
interface Scope {
  env: NodeJS.ProcessEnv;
  values: Values;
}

/**
 * Replaces GitHub's runners. Every job runs on an empty machine at the same path. Caches and artifacts
 * outlive the machine. The steps of mgw's action are read from action.yml. `values` are the repository's
 * variables and secrets, such as `vars.MGW_BASE_URL`.
 */
export class Runners {
  private readonly folder = freshFolder();
  private readonly values: Values;
  private ran: WorkflowRun = { code: 0, log: '', summary: '', workspace: '' };
  private onLog: OnLog = () => undefined;

  /** @param files the repository's files, by their paths */
  constructor(
    values: Values,
    private readonly files: Values = {},
  ) {
    this.values = { 'github.server_url': 'https://github.com', 'github.run_id': '4711', 'github.run_attempt': '0', 'strategy.job-index': '0', ...values };
  }

  /**
   * Runs a workflow. Each further call is another attempt of the same workflow run. `onLog` receives the log as it
   * grows, and may interrupt a step.
   */
  async run(text: string, onLog: OnLog = () => undefined): Promise<WorkflowRun> {
    const { name, env, jobs } = parse(text) as Workflow;
    this.ran = { code: 0, log: '', summary: '', workspace: join(this.folder, 'machine/work') };
    this.onLog = onLog;
    this.values['github.run_attempt'] = String(Number(this.values['github.run_attempt']) + 1);
    for (const [job, { steps }] of Object.entries(jobs)) {
      if (this.ran.code !== 0) break;
      const values = { ...this.values, 'github.job': job };
      const scope = { values, env: { ...this.machine(), GITHUB_WORKFLOW: name, ...filled(env, values) } };
      for (const step of steps) await this.step(step, scope);
      const summary = this.file('SUMMARY');
      if (existsSync(summary)) this.ran.summary += readFileSync(summary, 'utf8');
    }
    return this.ran;
  }

  private file(name: string): string {
    return join(this.folder, 'machine/temp', name);
  }

  private machine(): NodeJS.ProcessEnv {
    rmSync(join(this.folder, 'machine'), { recursive: true, force: true });
    for (const name of ['home', 'temp', 'work']) mkdirSync(join(this.folder, 'machine', name), { recursive: true });
    return {
      HOME: join(this.folder, 'machine/home'),
      PATH: process.env['PATH'],
      XDG_CACHE_HOME: cacheHome(),
      CI: 'true',
      GITHUB_ACTIONS: 'true',
      GITHUB_ENV: this.file('ENV'),
      GITHUB_OUTPUT: this.file('OUTPUT'),
      GITHUB_PATH: this.file('PATH'),
      GITHUB_RUN_ID: this.values['github.run_id'],
      GITHUB_STEP_SUMMARY: this.file('SUMMARY'),
      RUNNER_ARCH: process.arch === 'arm64' ? 'ARM64' : 'X64',
      RUNNER_OS: 'Linux',
      RUNNER_TEMP: join(this.folder, 'machine/temp'),
    };
  }

  private async step(step: Step, scope: Scope): Promise<void> {
    if (!isDue(step.if, this.ran.code, scope.values)) return;
    const env = { ...scope.env, ...filled(step.env, scope.values) };
    if (step.run !== undefined) return this.shell(step.id, fill(step.run, scope.values), env, scope);
    const [name = '', ref = ''] = step.uses?.split('@') ?? [];
    const inputs = filled(step.with, scope.values);
    if (!name.endsWith('/mgw/action')) {
      this.builtin(name, inputs);
      return;
    }
    const action = parse(readFileSync(join(actionFolder, 'action.yml'), 'utf8')) as Action;
    const values = { ...scope.values, ...this.values };
    values['github.action_ref'] = ref;
    values['github.action_repository'] = name.replace(/\/action$/, '');
    const unknown = Object.keys(inputs).filter((input) => !(input in action.inputs));
    if (unknown.length > 0) throw new Error(`unknown inputs: ${unknown.join()}`);
    for (const input of Object.keys(action.inputs)) values[`inputs.${input}`] = inputs[input] ?? '';
    const own: Scope = { values, env: { ...env, GITHUB_ACTION_PATH: actionFolder } };
    for (const inner of action.runs.steps) await this.step(inner, own);
    scope.env['PATH'] = own.env['PATH'];
  }

  private async shell(id: string | undefined, script: string, env: NodeJS.ProcessEnv, scope: Scope): Promise<void> {
    for (const name of ['ENV', 'OUTPUT', 'PATH']) writeFileSync(this.file(name), '');
    const options = ['--noprofile', '--norc', '-e', '-o', 'pipefail', '-c', script];
    const child = spawn('bash', options, {
      ...{ cwd: this.ran.workspace, env, detached: true },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    const interrupt = (): void => void process.kill(-(child.pid ?? 0), 'SIGINT');
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding('utf8').on('data', (log: string) => this.onLog((this.ran.log += log), interrupt));
    const code = await new Promise<number>((resolve, reject) => {
      child.once('error', reject);
      child.once('close', (exit) => resolve(exit ?? 130));
    });
    this.ran.code ||= code;
    for (const [name, value] of outputsIn(readFileSync(this.file('OUTPUT'), 'utf8')))
      scope.values[`steps.${id ?? ''}.outputs.${name}`] = value;
    for (const [name, value] of outputsIn(readFileSync(this.file('ENV'), 'utf8'))) {
      scope.env[name] = value;
      this.values[`env.${name}`] = value;
    }
    const added = readFileSync(this.file('PATH'), 'utf8').trim();
    if (added !== '') scope.env['PATH'] = `${added}:${scope.env['PATH'] ?? ''}`;
  }

  // Runs one of GitHub's own actions, with only the inputs that the recipes use.
  private builtin(name: string, { name: artifact = '', path = '.', key = '', ...rest }: Values): void {
    const { workspace } = this.ran;
    if (key.includes(',')) throw new Error(`a cache key with a comma: ${key}`);
    const here = path.startsWith('/') ? path : join(workspace, path);
    const [artifacts, caches] = [join(this.folder, 'artifacts', artifact), join(this.folder, 'caches')];
    if (name === 'actions/cache/save') cpSync(here, join(caches, key), { recursive: true, errorOnExist: true });
    else if (name === 'actions/upload-artifact') {
      // Uses only the first path. The recipes list a second path, which may be missing.
      const [first = ''] = here.split('\n');
      if (existsSync(first))
        cpSync(first, extname(path) === '' ? artifacts : join(artifacts, basename(path)), { recursive: true });
    } else if (name === 'actions/download-artifact') cpSync(artifacts, workspace, { recursive: true });
    else if (name === 'actions/cache/restore') {
      const prefix = rest['restore-keys'] ?? '';
      // A key ends with the attempt number, so the newest key sorts last.
      const keys = existsSync(caches) ? readdirSync(caches).sort() : [];
      const newest = keys.filter((each) => each.startsWith(prefix)).at(-1);
      if (newest !== undefined) cpSync(join(caches, newest), here, { recursive: true });
    } else if (name === 'actions/checkout')
      for (const [file, source] of Object.entries(this.files)) cpSync(source, join(workspace, file));
    else throw new Error(`unknown action: ${name}`);
  }
}

function isDue(condition: string | undefined, code: number, values: Values): boolean {
  if (condition === 'always()') return true;
  if (code !== 0 && condition?.startsWith('always()') !== true) return false;
  const [, name = '', operator, value] = /^(?:always\(\) && )?(\S+) ([!=]=) '(.*)'$/.exec(condition ?? '') ?? [];
  if (condition !== undefined && operator === undefined) throw new Error(`unknown condition: ${condition}`);
  return condition === undefined || (valueOf(name, values) === value) === (operator === '==');
}

function filled(texts: Values | undefined, values: Values): Values {
  return Object.fromEntries(Object.entries(texts ?? {}).map(([name, text]) => [name, fill(text, values)]));
}

function fill(text: string, values: Values): string {
  return text.replace(/\$\{\{ *(.*?) *\}\}/g, (_, name: string) => valueOf(name, values));
}

function valueOf(name: string, values: Values): string {
  const value = values[name];
  if (value === undefined) throw new Error(`no step sets \${{ ${name} }}`);
  return value;
}

function outputsIn(text: string): [string, string][] {
  const found = text.matchAll(/^(\w+)(?:=(.*)|<<(.+)\n([^]*?)\n\3)$/gm);
  return Array.from(found, ([, name = '', line, , lines]) => [name, line ?? lines ?? '']);
}
