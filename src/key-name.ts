const form = /^[A-Za-z0-9_][A-Za-z0-9_.@:+-]{0,127}$/;

/** What {@link isKeyName} allows, in words. */
export const keyNameForm =
  '1 to 128 letters, digits and _ . @ : + -, beginning with a letter, digit or _, without ..';

/** True for what can name a job: it is safe in a script, in a file name and in a log. */
export function isKeyName(name: string): boolean {
  return form.test(name) && !name.includes('..');
}
