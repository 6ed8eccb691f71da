import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { delimiter, dirname, join } from 'node:path';
import { resolveNoInput } from '../../config/resolve.ts';
import { listSettings, type KeyPath } from '../../config/setting-names.ts';
import { thisHost } from '../../config/places.ts';
import { configBytes, configPath, parseConfig } from '../../config/read.ts';
import { checkConfig, type ConfigFile } from '../../config/schema.ts';
import { messageOf, MgwError, toMgwError, usageError, localError } from '../../errors.ts';
import { makeFolder } from '../../files/make-folder.ts';
import { printableLine } from '../../printable.ts';
import type { Context } from '../context.ts';
import type { Io } from '../io.ts';
import type { Outcome } from '../output/outcome.ts';
import { readLine } from '../input.ts';
import { parsePrice } from '../../budget/prices.ts';
import { priceSchema } from '../../flows/prices.ts';
import { compose, longName } from '../../protocols/compose.ts';
import { protocolNamed } from '../../protocols/registry.ts';
import type { Flag } from '../../protocols/protocol.ts';
import { violationMessage } from '../../protocols/violations.ts';

/**
 * Opens a copy of the config file in an editor, and replaces the file with the copy if the copy is valid. This can
 * repair an invalid file.
 * @throws MgwError, exit 2, if no editor is set, the editor fails, or the copy is invalid. The file is then unchanged.
 */
export async function editConfig(context: Context): Promise<Outcome> {
  const { io, progress } = context;
  const editor = [io.env['VISUAL'], io.env['EDITOR']].find((command) => command?.trim());
  if (editor === undefined) throw noEditor(io);
  const file = configPath(io.env);
  const originalBytes = configBytes(file);
  const folder = await copyFolder(file);
  const copy = join(folder, 'config.json');
  let keepsCopy = false;
  try {
    const initialBytes = originalBytes ?? Buffer.from(emptyConfig);
    await writeFile(copy, initialBytes, { mode: 0o600 });
    const edited = await editUntilValid(context, editor, file, copy);
    const isChanged = !edited.bytes.equals(initialBytes);
    if (isChanged) {
      const { replaceConfig } = await import('../../config/store.ts');
      await replaceConfig(file, originalBytes, edited.config).catch((error: unknown) => {
        keepsCopy = true;
        const { message, ...details } = toMgwError(error);
        throw new MgwError(details.code, `${message} Your changes are in ${copy}.`);
      });
    }
    progress.note(isChanged ? `Saved ${file}.` : 'Nothing was changed.');
    return { json: { config_file: file, changed: isChanged } };
  } finally {
    // Removes the copy, because it may contain the key.
    if (!keepsCopy) await rm(folder, { recursive: true, force: true });
  }
}

const emptyConfig = `${JSON.stringify({ profiles: { default: {} } }, undefined, 2)}\n`;

// Creates a folder for the copy next to the config file. Only the owner can enter the folder, because the copy may
// contain the key.
async function copyFolder(file: string): Promise<string> {
  try {
    await makeFolder(dirname(file));
    return await mkdtemp(join(dirname(file), 'edit-'));
  } catch (error) {
    throw localError(error, dirname(file), 'no');
  }
}

async function editUntilValid(
  { io, globals, progress }: Context,
  editor: string,
  file: string,
  copy: string,
): Promise<{ bytes: Buffer; config: ConfigFile }> {
  const profileName = { value: 'default', source: 'default' } as const;
  const noInput = resolveNoInput({ flags: globals, env: io.env, profile: {}, profileName }).value;
  for (;;) {
    await runEditor(editor, copy, io);
    const bytes = await readFile(copy).catch((error: unknown) => {
      throw localError(error, copy, 'no');
    });
    try {
      return { bytes, config: await parseConfigBytes(file, bytes, io.env) };
    } catch (error) {
      const { message } = toMgwError(error);
      const invalidError = new MgwError('config', `${message} Nothing was changed.`, {
        next: ['mgw', 'config', 'edit'],
      });
      if (io.stdin.isTTY !== true || noInput) throw invalidError;
      progress.note(message);
      const answer = await readLine(io, 'Edit it again? [Y/n] ');
      if (/^\s*n/i.test(answer)) throw invalidError;
    }
  }
}

// Runs the editor through a shell, because its command may have arguments, such as `code --wait`. mgw ignores Ctrl-C
// while the editor runs.
async function runEditor(editor: string, copy: string, { env, stdout }: Io): Promise<void> {
  const ignore = (): void => undefined;
  process.on('SIGINT', ignore);
  try {
    const failure = await new Promise<string | undefined>((resolve) => {
      const isWindows = process.platform === 'win32';
      const [command, ...args] = isWindows
        ? [`${editor} "${copy}"`]
        : ['/bin/sh', '-c', `${editor} "$1"`, 'sh', copy];
      // If stdout is not a terminal, it is reserved for the JSON document.
      const out = stdout.isTTY === true ? 'inherit' : 2;
      spawn(command ?? '', args, { shell: isWindows, stdio: ['inherit', out, 'inherit'], env })
        .once('error', (error) => resolve(messageOf(error)))
        .once('close', (code, signal) =>
          resolve(
            code === 0 ? undefined : signal === null ? `exited with ${code}` : `was ended by ${signal}`,
          ),
        );
    });
    if (failure === undefined) return;
    const text = `The editor ${printableLine(editor, 100)} ${failure}. Nothing was changed.`;
    throw usageError(text, ['mgw', 'config', 'path']);
  } finally {
    process.off('SIGINT', ignore);
  }
}

function noEditor({ env }: Io): MgwError {
  const folders = (env['PATH'] ?? '').split(delimiter);
  const found = ['nano', 'vim', 'vi'].find((name) =>
    folders.some((folder) => existsSync(join(folder, name))),
  );
  return usageError(
    "No editor is set. Set VISUAL or EDITOR to your editor's command.",
    found === undefined ? ['mgw', 'config', 'path'] : ['env', `EDITOR=${found}`, 'mgw', 'config', 'edit'],
  );
}

/**
 * Parses a config file's bytes.
 * @throws MgwError('config') naming the invalid part.
 */
async function parseConfigBytes(
  file: string,
  bytes: Uint8Array,
  env: NodeJS.ProcessEnv,
): Promise<ConfigFile> {
  const checked = checkConfig(parseConfig(file, bytes));
  if ('problem' in checked) throw new MgwError('config', `The config file ${file}: ${checked.problem}.`);
  const { profile: chosen, profiles } = checked.file;
  if (chosen !== undefined && chosen !== 'default' && !Object.hasOwn(profiles, chosen))
    throw new MgwError('config', `profile: there is no profile "${printableLine(chosen, 60)}".`);
  // Omits mgw's environment variables, because they would override the values in the file.
  const otherVariables = Object.fromEntries(Object.entries(env).filter(([name]) => !name.startsWith('MGW_')));
  for (const [name, profile] of Object.entries(profiles)) {
    const profileName = { value: name, source: 'profile', name } as const;
    const rows = listSettings({ flags: {}, env: otherVariables, profile, profileName }, thisHost());
    const invalid = rows.find(({ problem }) => problem !== undefined);
    if (invalid !== undefined) throw new MgwError('config', invalid.problem ?? '');
    await checkModels(profile);
  }
  return checked.file;
}

async function checkModels({ prices = {}, defaults }: ConfigFile['profiles'][string]): Promise<void> {
  for (const [protocol, models] of Object.entries({ ...prices, tts: { '': prices.tts } }))
    for (const [model, text] of Object.entries(typeof models === 'object' ? models : {}))
      if (text !== undefined) checkPrice(['prices', protocol, model], [text]);
  for (const [protocol, models] of Object.entries(defaults?.video ?? {}))
    for (const [model, flags] of Object.entries(models))
      for (const [name, value] of Object.entries(flags))
        await checkDefault(['defaults', 'video', protocol, model, name], [value].flat().map(String));
}

/**
 * Checks a configured default (`defaults.video.a.MODEL.FLAG`) in the same way as the flag.
 * @throws MgwError('usage') listing the existing flags, or the allowed values.
 */
export async function checkDefault(path: KeyPath, words: readonly string[]): Promise<void> {
  const [, , protocolName = '', model = '', name = ''] = path;
  const protocol = protocolNamed(protocolName);
  const usable = protocol.flags.filter((flag) => flag.kind !== 'file' && longName(flag) !== 'model');
  const flag = usable.find((one) => longName(one) === name);
  if (flag === undefined)
    throw usageError(
      `Protocol ${protocolName.toUpperCase()} has no default "${name}". Available: ${usable.map(longName).join(', ')}.`,
    );
  if (flag.kind !== 'list' && words.length !== 1)
    throw usageError(`${path.join('.')} must be a single value.`);
  for (const word of words) checkWord(flag, path, word);
  const flagValue = flag.kind === 'list' ? [...words] : (words[0] ?? '');
  const value = flag.kind === 'switch' ? flagValue === 'true' : flagValue;
  const body = protocol.normalize(compose(protocol, { flags: { model, [name]: value } }));
  const violations = (await protocol.checks()).check(body);
  const flagViolations = violations.filter(
    (violation) => violation.flag === `--${name}` && violation.value !== '',
  );
  if (flagViolations.length > 0) throw usageError(violationMessage(flagViolations, model));
}

function checkWord(flag: Flag, path: KeyPath, word: string): void {
  try {
    if (flag.kind === 'switch' && word !== 'true' && word !== 'false') throw new Error('true or false');
    flag.parse?.(flag.kind === 'switch' ? word === 'true' : word);
  } catch (error) {
    throw usageError(`${path.join('.')} ${word}: must be ${messageOf(error)}.`);
  }
}

/** Checks a configured price (`prices.c.MODEL`). @throws MgwError('usage') describing the allowed form. */
export function checkPrice(path: KeyPath, words: readonly string[]): void {
  const { flags, units } = priceSchema(path[1] ?? '');
  try {
    parsePrice(words.join('; '), flags, units);
  } catch (error) {
    throw usageError(`${path.join('.')}: ${messageOf(error)}.`);
  }
}
