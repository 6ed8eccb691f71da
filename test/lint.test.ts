import { ESLint } from 'eslint';
import tseslint from 'typescript-eslint';
import { expect, it } from 'vitest';

const cwd = new URL('..', import.meta.url).pathname;
// The rules tested here do not need types, which take seconds to load.
const eslint = new ESLint({ cwd, overrideConfig: tseslint.configs.disableTypeChecked as never });

/** Returns the number of each line that breaks a rule, and the rule. */
async function rulesBroken(text: string, filePath: string): Promise<string[]> {
  const [result] = await eslint.lintText(text, { filePath });
  return [...new Set(result?.messages.map(({ line, ruleId }) => `${line} ${ruleId ?? ''}`))];
}

it("the linter forbids the global fetch, undici's index and certain phrases in src", async () => {
  const text = [
    "export { request } from 'undici';",
    "export const reply = fetch('http://127.0.0.1');",
    "export const other = globalThis.fetch('http://127.0.0.1');",
    '/** Undefined where there is none. */',
    "export const message = 'allowed is a number';",
    '// The part of it that is under way.',
    'export const reader = `nobody reads ${String(process.pid)}`;',
  ];
  expect((await rulesBroken(`${text.join('\n')}\n`, 'src/installation.ts')).sort()).toEqual([
    '1 @typescript-eslint/no-restricted-imports',
    '2 no-restricted-globals',
    '3 no-restricted-properties',
    '4 no-warning-comments',
    '5 no-restricted-syntax',
    '6 no-warning-comments',
    '7 no-restricted-syntax',
  ]);
});

it("the linter allows fetch in the sandbox and in the gallery's page", async () => {
  const text = "export const reply = fetch('http://127.0.0.1');\n";
  expect(await rulesBroken(text, 'src/sandbox/server.ts')).toEqual([]);
});
